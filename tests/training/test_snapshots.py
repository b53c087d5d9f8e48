"""Networks kept along the way."""

import os
from pathlib import Path

import pytest
import torch

from conftest import TINY
from selftaught import Embedder, train
from selftaught.data import find_images
from selftaught.errors import SelftaughtError
from selftaught.training import loop as loop_module
from selftaught.training.snapshots import kept, load_snapshot

CPU = torch.device("cpu")


def rows(embedder: Embedder, folder: Path) -> torch.Tensor:
    images = find_images(folder)
    return embedder.encode([images.path(i) for i in range(4)])


def test_start_every_so_many_epochs_and_the_end_are_kept(photos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = train(photos, out=run, epochs=3, snapshots=2, quiet=True, **TINY)
    assert kept(run) == [0, 2, 3]
    last = load_snapshot(run, 3, CPU)
    assert set(last.student.heads) == {"f", "g"}
    assert last.teacher is not None
    assert set(last.teacher.heads) == {"g"}
    description = model.description
    assert torch.equal(rows(Embedder(last.student, description), photos), rows(model, photos))
    start = load_snapshot(run, 0, CPU)
    assert not torch.equal(rows(Embedder(start.student, description), photos), rows(model, photos))
    assert start.settings.snapshots == 2
    file = run / "snapshots" / "epoch-002.safetensors"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(SelftaughtError, match="not a regular file"):
        load_snapshot(run, 2, CPU)


def test_none_are_kept_unless_asked_for(run: Path) -> None:
    assert kept(run) == []
    with pytest.raises(SelftaughtError, match=r"epoch-001\.safetensors"):
        load_snapshot(run, 1, CPU)


@pytest.mark.parametrize("method", ["moco", "msf"])
def test_methods_without_teacher_and_with_other_heads_are_kept_too(photos: Path, tmp_path: Path, method: str) -> None:
    run = tmp_path / "run"
    model = train(photos, out=run, epochs=1, snapshots=1, method=method, queue=16, quiet=True, **TINY)
    last = load_snapshot(run, 1, CPU)
    assert last.teacher is None
    assert torch.equal(rows(Embedder(last.student, model.description), photos), rows(model, photos))


def test_a_run_that_could_not_begin_leaves_nothing_in_the_way_of_the_next(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SelftaughtError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(loop_module, "save_checkpoint", full)
        with pytest.raises(SelftaughtError, match="the disk is full"):
            train(photos, out=tmp_path / "run", epochs=1, snapshots=1, quiet=True, **TINY)
    train(photos, out=tmp_path / "run", epochs=1, snapshots=1, quiet=True, **TINY)
    assert kept(tmp_path / "run") == [0, 1]
