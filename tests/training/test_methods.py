"""Every method in the one loop: trains, is saved with its metric, resumes to the same result."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY
from selftaught import Embedder, train
from selftaught.errors import SelftaughtError, UsageError
from selftaught.learners import METHODS as KNOWN
from selftaught.learners import has_setting
from selftaught.networks import Preprocessing
from selftaught.networks.small import SmallNetwork
from selftaught.training import loop as loop_module

METHODS = [method for method in KNOWN if method not in ("stml", "slade")]
"""STML and SLADE have tests of their own."""
OPTIONS: dict[str, Any] = TINY | {"epochs": 2, "quiet": True}


@pytest.mark.parametrize(("method", "optimizer"), [*((method, "adamp") for method in METHODS), ("isif", "sgd")])
def test_method_resumes_after_an_epoch_to_the_same_result(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, optimizer: str
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options = OPTIONS | {"optimizer": optimizer} | ({"queue": 16} if has_setting(method, "queue") else {})
    options |= {"backbone": "small_abe", "dim": 16} if KNOWN[method].ensemble else {}
    model = train(photos, out=whole, method=method, eval=photos, **options)
    finish = loop_module.Loop._finish_epoch

    def stop(loop: loop_module.Loop, progress: Any) -> None:
        finish(loop, progress)
        raise SelftaughtError("pulled the plug")

    monkeypatch.setattr(loop_module.Loop, "_finish_epoch", stop)
    with pytest.raises(SelftaughtError, match="pulled the plug"):
        train(photos, out=broken, method=method, eval=photos, **options)
    monkeypatch.setattr(loop_module.Loop, "_finish_epoch", finish)
    train(resume=broken, quiet=True)
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    loaded = Embedder.load(whole, device="cpu")
    files = sorted(str(path) for path in photos.rglob("*.jpg"))[:3]
    vectors = loaded.encode(files)
    assert torch.equal(vectors, model.encode(files))
    assert loaded.metric == "cosine"
    assert torch.allclose(vectors.norm(dim=1), torch.ones(3))


def test_labels_are_needed_by_labeled_methods_alone(photos: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, path in enumerate(photos.rglob("*.jpg")):
        (flat / f"{number}.jpg").write_bytes(path.read_bytes())
    train(flat, out=tmp_path / "moco", method="moco", **OPTIONS | {"epochs": 0})
    for method in [name for name, method in KNOWN.items() if method.labeled and name != "slade"]:
        backbone = {"backbone": "small_abe"} if KNOWN[method].ensemble else {}
        with pytest.raises(SelftaughtError, match="in no class folder"):
            train(flat, out=tmp_path / method, method=method, **OPTIONS | backbone)


def test_scores_are_measured_every_so_many_epochs_and_after_the_last(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "run", eval=photos, eval_every=2, **OPTIONS | {"epochs": 5})
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows if "recall@1" in row] == [2, 4, 5]
    assert {"recall@1", "recall@2", "recall@4", "recall@8", "recall@10", "recall@100"} < set(rows[-1])


def test_unknown_methods_get_the_nearest_name_and_too_many_clusters_are_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'moco'"):
        train(photos, out=tmp_path / "run", method="mocco", **OPTIONS)
    with pytest.raises(UsageError, match="too many for 24 images: give at most 12"):
        train(photos, out=tmp_path / "run", method="deepcluster", clusters=13, **OPTIONS)


def test_a_finished_run_without_checkpoint_is_not_trained_again(photos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(photos, out=run, **OPTIONS)
    (run / "checkpoint.pt").unlink()
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="is finished and has kept no checkpoint"):
        train(resume=run, quiet=True)
    assert (run / "model.safetensors").read_bytes() == before


def test_preprocessing_of_a_module_of_ones_own_outlives_a_stop_before_the_first_checkpoint(
    photos: Path, tmp_path: Path
) -> None:
    run, inputs = tmp_path / "run", Preprocessing(size=48, mean=(0.5, 0.5, 0.5))
    options = {name: value for name, value in OPTIONS.items() if name != "backbone"}
    module = SmallNetwork()
    train(photos, out=run, backbone=module, preprocessing=inputs, **options | {"epochs": 0})
    for file in run.iterdir():
        if file.is_dir():
            shutil.rmtree(file)
        elif file.name != "settings.json":
            file.unlink()
    model = train(resume=run, backbone=module, quiet=True)
    assert model.preprocessing == inputs
