"""Runs that begin with the network of another run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from conftest import TINY, Call, draw_photos, note_calls
from selftaught import Embedder, train
from selftaught.errors import SelftaughtError, UsageError
from selftaught.networks import build_backbone
from selftaught.training import model

FROM: dict[str, Any] = {name: value for name, value in TINY.items() if name != "backbone"} | {"quiet": True}


def learned(run: Path) -> dict[str, torch.Tensor]:
    content: dict[str, torch.Tensor] = torch.load(run / "checkpoint.pt", weights_only=True)["learner"]
    return content


@pytest.mark.parametrize("method", ["stml", "moco"])
def test_student_and_teacher_both_begin_as_the_network_of_the_other_run(
    photos: Path, tmp_path: Path, method: str
) -> None:
    first = tmp_path / "first"
    train(photos, out=first, epochs=1, method=method, **(TINY | {"quiet": True}))
    train(photos, out=tmp_path / "new", from_run=first, method=method, epochs=0, **FROM)
    before, after = learned(first), learned(tmp_path / "new")
    student = {name: tensor for name, tensor in before.items() if name.startswith("network.")}
    assert all(torch.equal(after[name], tensor) for name, tensor in student.items())
    for name, tensor in after.items():
        inner = name.removeprefix("teacher.").removeprefix("target.network.")
        if inner != name:
            assert torch.equal(tensor, student[f"network.{inner}"]), name
    assert json.loads((tmp_path / "new" / "settings.json").read_text())["from_run"] == str(first)


def test_the_model_of_the_other_run_is_loaded_once(
    photos: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = note_calls(monkeypatch, "selftaught.embedder", "build_network")
    change: dict[str, Any] = {"recipe": "best", "batch_size": None, "neighbors": None}  # begins twice, and is measured
    train(photos, out=tmp_path / "new", from_run=run, epochs=1, **(FROM | change))
    assert loaded.count(str(run)) == 1


def test_heads_of_another_size_are_new_and_a_run_without_checkpoint_gives_its_backbone(
    photos: Path, run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "bare")
    (tmp_path / "bare" / "checkpoint.pt").unlink()
    before = load_file(run / "model.safetensors")
    for origin, dim in ((run, 6), (tmp_path / "bare", 6), (tmp_path / "bare", 8)):
        out = tmp_path / f"{origin.name} {dim}"
        train(photos, out=out, from_run=origin, epochs=0, **(FROM | {"dim": dim}))
        after = load_file(out / "model.safetensors")
        assert all(torch.equal(after[name], before[name]) for name in after if name.startswith("encoder."))
        assert torch.equal(after["heads.f.bias"], before["heads.f.bias"]) == (dim == 8)


def test_the_model_it_started_from_is_measured_and_served_where_training_made_it_worse(
    photos: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model, "measure", lambda *_: {"found_again": 0.0})
    new = tmp_path / "new"
    train(photos, out=new, from_run=run, epochs=1, **(FROM | {"recipe": "best", "quiet": False}))
    told = capsys.readouterr().err
    assert "the model it started from: images found again" in told
    assert "so the model it started from is served, and the trained one is in trained/" in told
    assert json.loads((new / "models.json").read_text())["floor"] == "the model it started from"
    assert torch.equal(
        load_file(new / "model.safetensors")["heads.f.weight"], load_file(run / "model.safetensors")["heads.f.weight"]
    )
    again = tmp_path / "again"  # from what is served, not from what was made worse
    train(photos, out=again, from_run=new, epochs=0, **FROM)
    served = load_file(new / "model.safetensors")
    assert all(
        torch.equal(learned(again)[f"network.{name}"], tensor) for name, tensor in served.items() if "encoder" in name
    )


def test_untrained_floors_are_those_of_the_backbone_as_it_was(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path
) -> None:
    torch.manual_seed(5)
    plain = build_backbone("small", "none")
    monkeypatch.setattr(model, "weights_on_disk", lambda _: True)
    monkeypatch.setattr(model, "build_backbone", lambda _: plain)
    train(photos, out=tmp_path / "new", from_run=run, epochs=0, **(FROM | {"deliver": "f"}))
    models = json.loads((tmp_path / "new" / "models.json").read_text())
    assert {"plain backbone", "the model it started from"} <= models["models"].keys()
    if models["floor"] != "the model it started from":
        floor = load_file(tmp_path / "new" / "floor" / "model.safetensors")
        name = next(iter(plain.module.state_dict()))
        assert torch.equal(floor[f"encoder.backbone.{name}"], plain.module.state_dict()[name])


def test_what_does_not_go_with_from_is_said_before_anything_is_written(photos: Path, run: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"backbone": "resnet18"}, "has the backbone small and weights of its own: leave --backbone"),
        ({"weights": "none"}, "leave --backbone and --weights out"),
        ({"from_run": "resnet18"}, "is a backbone's name: give it with --backbone"),
        ({"from_run": tmp_path / "none"}, "there is no run"),
        ({"backbone": nn.Conv2d(3, 8, 9)}, "has a backbone by name: leave the module out"),
    ]
    for change, words in cases:
        with pytest.raises(UsageError, match=words):
            train(photos, out=tmp_path / "new", **(FROM | {"from_run": run} | change))
    with pytest.raises(UsageError, match="--from is for a folder of images"):
        train(labeled=photos, unlabeled=photos, out=tmp_path / "new", **(FROM | {"from_run": run, "recipe": "semi"}))
    assert not (tmp_path / "new").exists()


def test_a_model_of_ones_own_module_is_started_from_with_that_module(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "first", backbone=nn.Conv2d(3, 8, 16, 16), epochs=1, **FROM)
    with pytest.raises(UsageError, match="a backbone of your own"):
        train(photos, out=tmp_path / "new", from_run=tmp_path / "first", **FROM)
    other = nn.Conv2d(3, 9, 16, 16)
    with pytest.raises(SelftaughtError, match="size mismatch"):
        train(photos, out=tmp_path / "new", from_run=tmp_path / "first", backbone=other, **FROM)
    module = nn.Conv2d(3, 8, 16, 16)
    train(photos, out=tmp_path / "new", from_run=tmp_path / "first", backbone=module, epochs=0, **FROM)
    assert Embedder.load(tmp_path / "new", "cpu", module).dim == 8


def test_resuming_says_when_images_came_or_went(tmp_path: Path, call: Call) -> None:
    photos = draw_photos(tmp_path / "photos", classes=3, photos=4)
    train(photos, out=tmp_path / "run", epochs=1, **(TINY | {"quiet": True}))
    assert "without which the run goes on" not in call("train", "--resume", tmp_path / "run", "--no-report")[2]
    shutil.copy(photos / "class 0" / "1.jpg", photos / "class 0" / "new.jpg")
    code, _, told = call("train", "--resume", tmp_path / "run", "--no-report")
    assert code == 0
    assert "1 new image in" in told
    assert f"selftaught train PHOTOS --out NEW --from {tmp_path / 'run'}" in told
    (photos / "class 0" / "1.jpg").unlink()
    code, _, told = call("train", "--resume", tmp_path / "run")
    assert code == 1
    assert "bring them back to resume, or learn from those that are left in a new run: selftaught train PHOTOS" in told
    words = ["--from", tmp_path / "run", "--epochs", 0, "--dim", 8, "--batch-size", 8, "--neighbors", 2]
    assert call("train", photos, "--out", tmp_path / "new", *words, "--no-report")[0] == 0
