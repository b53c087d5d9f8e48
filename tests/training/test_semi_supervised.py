"""Semi-supervised training: two stages, one command, resumable in either."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from conftest import TINY, draw_photos, note_calls
from selftaught import Embedder, model_files, train
from selftaught.errors import Collapse, Interrupted, SelftaughtError, UsageError
from selftaught.training import loop as loop_module
from selftaught.training import model as model_module
from selftaught.training.checkpoint import load_checkpoint

pytest.importorskip("pytorch_metric_learning")
SEMI: dict[str, Any] = TINY | {"recipe": "semi", "epochs": 2, "supervised_epochs": 2, "quiet": True}
SEMI |= {"freeze_batch_norm": False}


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Four labeled classes, and images without labels."""
    place = tmp_path_factory.mktemp("halves")
    labeled = draw_photos(place / "labeled", classes=4, photos=4)
    unlabeled = place / "unlabeled"
    unlabeled.mkdir()
    for number, photo in enumerate(sorted(draw_photos(place / "more", classes=5, photos=4).rglob("*.jpg"))):
        shutil.copy(photo, unlabeled / f"{number}.jpg")
    return labeled, unlabeled


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_second_stage_learns_from_all_images_starting_where_the_first_ended(
    halves: tuple[Path, Path], tmp_path: Path
) -> None:
    labeled, unlabeled = halves
    run = tmp_path / "run"
    train(labeled=labeled, unlabeled=unlabeled, out=run, eval=labeled, **SEMI | {"epochs": 0})
    first, second = load_checkpoint(run / "supervised"), load_checkpoint(run)
    assert first is not None
    assert second is not None
    assert len(first.state.files) == 16
    assert len(second.state.files) == 36
    ended = {k: v for k, v in first.parts["learner"].items() if k.startswith("network.")}
    began = second.parts["learner"]
    assert {"network.heads.f.weight", "network.heads.g.weight"} < set(ended)
    for name, tensor in ended.items():
        assert torch.equal(tensor, began[name])
        if not name.startswith("network.heads.f"):  # the teacher has no f
            assert torch.equal(tensor, began[name.replace("network.", "teacher.", 1)])


def test_the_finished_model_is_that_of_the_second_stage_with_the_papers_settings(
    halves: tuple[Path, Path], tmp_path: Path
) -> None:
    labeled, unlabeled = halves
    run = tmp_path / "run"
    train(labeled=labeled, unlabeled=unlabeled, out=run, eval=labeled, **SEMI)
    saved = json.loads((run / "settings.json").read_text())
    assert (saved["settings"]["sigma"], saved["settings"]["momentum"]) == (2.0, 0.9999)
    assert saved["settings"]["method"] == "stml"
    stage = json.loads((run / "supervised" / "settings.json").read_text())
    assert (stage["settings"]["method"], stage["settings"]["both_heads"]) == ("multi-similarity", True)
    assert Embedder.load(run).metric == "euclidean"
    assert Embedder.load(run / "supervised").metric == "cosine"
    assert len(rows(run)) == len(rows(run / "supervised")) == 2


@pytest.mark.parametrize(("method", "stopped_in"), [("stml", "supervised"), ("stml", "run"), ("slade", "run")])
def test_a_run_stopped_in_either_stage_goes_on_to_the_same_result(
    halves: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, stopped_in: str
) -> None:
    labeled, unlabeled = halves
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(labeled=labeled, unlabeled=unlabeled, out=whole, eval=labeled, method=method, **SEMI)
    finish = loop_module.Loop._finish_epoch

    def stop(loop: loop_module.Loop, progress: Any) -> None:
        finish(loop, progress)
        if (loop.parts.folder.name == "supervised") == (stopped_in == "supervised"):
            raise SelftaughtError("pulled the plug")

    monkeypatch.setattr(loop_module.Loop, "_finish_epoch", stop)
    with pytest.raises(SelftaughtError, match=f"--resume {broken}$"):
        train(labeled=labeled, unlabeled=unlabeled, out=broken, eval=labeled, method=method, **SEMI)
    monkeypatch.setattr(loop_module.Loop, "_finish_epoch", finish)
    train(resume=broken, quiet=True)
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert (broken / "supervised" / "metrics.jsonl").read_bytes() == (
        whole / "supervised" / "metrics.jsonl"
    ).read_bytes()


def test_slade_labels_the_unlabeled_images_by_clusters_once(halves: tuple[Path, Path], tmp_path: Path) -> None:
    labeled, unlabeled = halves
    run = tmp_path / "run"
    train(labeled=labeled, unlabeled=unlabeled, out=run, method="slade", clusters=3, **SEMI)
    state = load_checkpoint(run)
    assert state is not None
    classes = state.parts["learner"]["classes"]
    assert classes[:16].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert set(classes[16:].tolist()) == {4, 5, 6}
    assert Embedder.load(run).metric == "cosine"


def test_labels_are_not_looked_at_in_the_second_stage(halves: tuple[Path, Path], tmp_path: Path) -> None:
    labeled, unlabeled = halves
    run = tmp_path / "run"
    train(labeled=labeled, unlabeled=unlabeled, out=run, **SEMI | {"epochs": 0})
    first, second = load_checkpoint(run / "supervised"), load_checkpoint(run)
    assert first is not None
    assert second is not None
    assert "classes" in first.parts["learner"]
    assert "classes" not in second.parts["learner"]


def test_the_first_stage_can_have_a_rate_of_its_own(halves: tuple[Path, Path], tmp_path: Path) -> None:
    one = SEMI | {"supervised_epochs": 1, "epochs": 1, "lr": 1e-5, "head_lr": 1e-5}
    train(labeled=halves[0], unlabeled=halves[1], out=tmp_path / "run", supervised_lr=1e-3, **one)
    assert [row["lr"] for folder in ("run/supervised", "run") for row in rows(tmp_path / folder)] == [1e-3, 1e-5]


def test_every_image_is_decoded_once_and_every_folder_walked_once(
    halves: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = note_calls(monkeypatch, "selftaught.data.decoded_images", "open_image")
    walked = note_calls(monkeypatch, "selftaught.data.sources", "find_images")
    monkeypatch.setenv("SELFTAUGHT_CACHE", str(tmp_path / "cache"))
    train(labeled=halves[0], unlabeled=halves[1], out=tmp_path / "run", **SEMI | {"supervised_epochs": 1, "epochs": 1})
    assert len(decoded) == len(set(decoded)) == 36
    assert sorted(walked) == sorted(map(str, halves))


def test_one_of_the_two_folders_alone_is_misuse(halves: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both --labeled and --unlabeled"):
        train(labeled=halves[0], out=tmp_path / "run", **SEMI)
    with pytest.raises(UsageError, match="no other folder"):
        train(halves[1], labeled=halves[0], unlabeled=halves[1], out=tmp_path / "run", **SEMI)
    assert not (tmp_path / "run").exists()


def test_methods_that_do_not_fit_are_refused(halves: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for the methods stml and slade"):
        train(labeled=halves[0], unlabeled=halves[1], out=tmp_path / "run", method="moco", **SEMI)
    with pytest.raises(UsageError, match="needs --labeled and --unlabeled"):
        train(halves[0], out=tmp_path / "run", method="slade", **SEMI)


def test_labels_that_are_missing_or_alone_are_told_before_anything_is_written(
    halves: tuple[Path, Path], tmp_path: Path
) -> None:
    labeled, unlabeled = halves
    out = tmp_path / "run"
    with pytest.raises(SelftaughtError, match="in no class folder"):
        train(labeled=unlabeled, unlabeled=labeled, out=out, **SEMI)
    with pytest.raises(SelftaughtError, match="in no class folder"):
        train(unlabeled, out=out, method="multi-similarity", **SEMI)
    odd = shutil.copytree(labeled, tmp_path / "odd")
    (odd / "alone").mkdir()
    Image.new("RGB", (64, 64)).save(odd / "alone" / "1.jpg")
    for call in ({"labeled": odd, "unlabeled": unlabeled}, {"images": odd, "method": "proxy-anchor"}):
        with pytest.raises(SelftaughtError, match=r"1 of 5 classes .* with one image only, such as alone"):
            train(out=out, **call, **SEMI)
    assert not out.exists()


def test_a_first_stage_that_collapsed_is_not_taken_for_finished(
    halves: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labeled, unlabeled = halves
    run = tmp_path / "run"
    monkeypatch.setattr(loop_module, "symptom", lambda *_: "it is no longer alive")
    for again in ({"labeled": labeled, "unlabeled": unlabeled, "out": run, **SEMI}, {"resume": run, "quiet": True}):
        with pytest.raises(Collapse, match="in epoch 1: it is no longer alive"):
            train(**again)
        assert (run / "supervised" / "model.json").exists(), "the last good state is kept"
        assert not (run / "checkpoint.pt").exists()


def test_an_interrupt_at_the_end_of_the_first_stage_stops_before_the_second(
    halves: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labeled, unlabeled = halves
    run = tmp_path / "run"
    write = model_files.write_model

    def interrupted(*given: Any) -> None:
        write(*given)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(model_module, "write_model", interrupted)
    with pytest.raises(Interrupted, match=f"--resume {run}$"):
        train(labeled=labeled, unlabeled=unlabeled, out=run, **SEMI)
    assert not (run / "checkpoint.pt").exists()
    monkeypatch.setattr(model_module, "write_model", write)
    train(resume=run, quiet=True)
    assert (run / "model.json").exists()


def test_unreadable_images_may_be_allowed_when_the_run_goes_on(halves: tuple[Path, Path], tmp_path: Path) -> None:
    labeled = halves[0]
    unlabeled = shutil.copytree(halves[1], tmp_path / "unlabeled")
    for number in range(5):
        (unlabeled / f"broken {number}.jpg").write_bytes(b"no image")
    run = tmp_path / "run"
    with pytest.raises(SelftaughtError, match="--allow-skipped"):
        train(labeled=labeled, unlabeled=unlabeled, out=run, **SEMI | {"supervised_epochs": 1, "epochs": 1})
    train(resume=run, allow_skipped=True, quiet=True)
    assert len(rows(run)) == 1
