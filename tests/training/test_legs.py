import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from test_train import interrupt_at, rows

from conftest import TINY
from selftaught import Embedder, train
from selftaught.errors import Interrupted, UsageError
from selftaught.networks import build_backbone
from selftaught.run_folder import read_record
from selftaught.training import legs, model, resolve
from selftaught.training.legs import begin_leg


@pytest.fixture
def finished(run: Path, tmp_path: Path) -> Path:
    """A copy of a run of two epochs, of three steps each."""
    return Path(shutil.copytree(run, tmp_path / "run"))


def rates(run: Path) -> list[float]:
    return [row["lr"] / 1e-4 for row in rows(run)]


def test_a_finished_run_goes_on_with_a_schedule_of_its_own(
    finished: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Embedder.load(finished, "cpu").identity
    model = train(resume=finished, epochs=4)
    told = capsys.readouterr().err
    assert "resumed after epoch 2\n" in told
    assert "epochs 3 to 4: the learning rate starts at 0.0001 again and falls to 0 in a cosine" in told
    assert rates(finished) == pytest.approx([1, 0.5, 1, 0.5])
    assert rows(finished)[:2] == rows(run)
    assert model.identity != before
    train(resume=finished, epochs=5, lr=5e-5, quiet=True)
    assert rates(finished) == pytest.approx([1, 0.5, 1, 0.5, 0.5])


@pytest.mark.parametrize("method", ["stml", "deepcluster"])
def test_a_prolonged_run_stopped_anywhere_ends_with_the_same_bits(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    run = tmp_path / "run"
    train(photos, out=run, epochs=1, method=method, quiet=True, **TINY)
    for name in ("calm", "late", "early"):
        shutil.copytree(run, tmp_path / name)
    train(resume=tmp_path / "calm", epochs=3, quiet=True)
    interrupt_at(2, monkeypatch)
    with pytest.raises(Interrupted):
        train(resume=tmp_path / "late", epochs=3, quiet=True)
    train(resume=tmp_path / "late", quiet=True)
    monkeypatch.setattr("selftaught.training.loop.Loop._steps", _stop_at_once)
    with pytest.raises(Interrupted):
        train(resume=tmp_path / "early", epochs=3, quiet=True)
    monkeypatch.undo()
    train(resume=tmp_path / "early", quiet=True)
    calm = (tmp_path / "calm" / "model.safetensors").read_bytes()
    assert calm != (run / "model.safetensors").read_bytes()
    for name in ("late", "early"):
        assert (tmp_path / name / "model.safetensors").read_bytes() == calm, name
        assert (tmp_path / name / "metrics.jsonl").read_bytes() == (tmp_path / "calm" / "metrics.jsonl").read_bytes()


def test_a_prolonged_run_stopped_before_its_model_is_written_writes_it_when_it_goes_on(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "calm")
    train(resume=tmp_path / "calm", epochs=3, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr("selftaught.training.stage.save_model", _stop_at_once)
        with pytest.raises(Interrupted):
            train(resume=finished, epochs=3, quiet=True)
    train(resume=finished, quiet=True)
    assert (finished / "model.safetensors").read_bytes() == (tmp_path / "calm" / "model.safetensors").read_bytes()


def _stop_at_once(*_: object) -> None:
    raise Interrupted("interrupted")


def test_an_unfinished_run_gets_one_schedule_for_all_its_epochs(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt_at(4, monkeypatch)
    with pytest.raises(Interrupted):
        train(photos, out=tmp_path / "run", epochs=2, quiet=True, **TINY)
    train(resume=tmp_path / "run", epochs=3)
    assert "epochs 2 to 3: the learning rate starts at 7.5e-05 and falls" in capsys.readouterr().err
    assert rates(tmp_path / "run") == pytest.approx([(1 + math.cos(math.pi * epoch / 3)) / 2 for epoch in range(3)])


def test_a_run_that_settles_begins_like_a_shorter_one(
    photos: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(legs, "SETTLED_AFTER", 2)
    long = tmp_path / "run"
    interrupt_at(4, monkeypatch)
    with pytest.raises(Interrupted):
        train(photos, out=long, epochs=4, schedule="settle", eval=photos, quiet=True, **TINY)
    train(resume=long)
    told = "starts at 5e-05 and falls to 0 in a cosine until epoch 2, and then stays at 1e-06"
    assert f"epochs 2 to 4: the learning rate {told}" in capsys.readouterr().err
    assert rows(long)[:2] == rows(run)
    assert rates(long) == pytest.approx([1, 0.5, 0.01, 0.01])
    train(resume=long, epochs=5)
    assert "epoch 5: the learning rate starts at 0.0001 again and falls to 0 in a cosine\n" in capsys.readouterr().err


def test_epochs_that_are_done_already_are_no_end_to_go_on_to(finished: Path) -> None:
    before = {file: file.read_bytes() for file in finished.iterdir() if file.is_file()}
    for epochs in (0, 1, 2):
        with pytest.raises(UsageError, match=r"has done 2 epochs already: give --epochs more than that"):
            train(resume=finished, epochs=epochs, quiet=True)
    with pytest.raises(UsageError, match="needs a number of epochs"):
        train(resume=finished, epochs=None, quiet=True)
    assert {file: file.read_bytes() for file in finished.iterdir() if file.is_file()} == before


def test_an_automatic_momentum_is_that_of_the_added_steps(finished: Path) -> None:
    file = finished / "settings.json"
    record = json.loads(file.read_text())
    record["asked"]["momentum"] = None
    file.write_text(json.dumps(record))
    record = begin_leg(finished, read_record(finished), {"epochs": 1002})
    chosen, _ = resolve(record.requested, 24, build_backbone("small"), torch.device("cpu"), record.leg)
    assert vars(chosen)["momentum"] == 1 - 1 / 3000


def test_heads_alone_go_on_too_though_their_features_are_gone(photos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(photos, out=run, epochs=1, train="heads", quiet=True, **TINY)
    start = torch.load(run / "checkpoint.pt", weights_only=True)["learner"]
    train(resume=run, epochs=2, quiet=True)
    end = torch.load(run / "checkpoint.pt", weights_only=True)["learner"]
    changed = {name for name in start if not torch.equal(start[name], end[name])}
    assert changed
    assert all(".heads." in name for name in changed)


def test_a_trained_model_that_became_the_better_one_is_not_kept_twice(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter((0.0, 1.0))
    monkeypatch.setattr(model, "measure", lambda *_: {"found_again": next(found)})
    options = TINY | {"recipe": "best", "backbone": torch.nn.Conv2d(3, 8, 16, 16)}
    run = tmp_path / "run"
    train(photos, out=run, epochs=1, quiet=True, **options)
    assert (run / "trained").is_dir()
    train(resume=run, epochs=2, backbone=options["backbone"], quiet=True)
    assert not (run / "trained").exists()
