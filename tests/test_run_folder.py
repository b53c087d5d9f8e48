"""Whatever happens to a run's files, reading them ends in one sentence or in a run that goes on as it was."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from selftaught import Embedder, files
from selftaught.errors import SelftaughtError, UsageError
from selftaught.files import claim_folder, lock_folder
from selftaught.model_files import read_description
from selftaught.networks.weights import read_state
from selftaught.recipes import Settings
from selftaught.run_folder import (
    CHECKPOINT,
    PARTIAL,
    SETTINGS,
    SKIPPED,
    TIMING,
    create_run,
    has_begun,
    is_finished,
    read_record,
    write_record,
)
from selftaught.training.checkpoint import Checkpoint, TrainState, load_checkpoint, read_checkpoint, save_checkpoint
from selftaught.training.logbook import Logbook
from selftaught.training.loop import Loop
from selftaught.training.optimizer import AdamP
from selftaught.vector_log import LoggedBatch, VectorLog, read_log
from selftaught.vectors import Vectors, read_vectors, write_vectors

OTHERS: list[Any] = [None, True, -1, 10**400, float("nan"), "text", "\ud800", [], [[1]], {}, {"x": 1}]
"""Values of which most are of the wrong kind, wherever they stand."""
NONSENSE = [b"", b"{", b"[]", b"null", b"\x00" * 99, b"\xff\xfe", b"[" * 100_000, b"\x80\x04N.", b'{"format": 2}']


def refused(read: Callable[[], object], file: Path) -> bool:
    """Whether reading ends in an error, which must be one sentence that names the file; any other kind fails."""
    try:
        read()
        return False
    except SelftaughtError as error:
        sentence = str(error)
    assert str(file) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 600
    return True


def damages(content: bytes, count: int) -> Iterator[bytes]:
    """The content cut off and with single bits turned, at places all over it; then nonsense."""
    places = np.linspace(0, len(content) - 1, count).astype(int).tolist()
    yield from (content[:place] for place in places)
    for place in places:
        yield content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
    yield from NONSENSE


def replacements(folder: Path, name: str) -> Iterator[None]:
    """Puts in place of a file what is none: a pipe, a device, a folder, a link to itself."""
    file = folder / name
    makers: list[Callable[[], object]] = [
        lambda: os.mkfifo(file),
        lambda: file.symlink_to("/dev/zero"),
        lambda: file.mkdir(),
        lambda: file.symlink_to(file),
    ]
    for make in makers:
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        make()
        yield
    shutil.rmtree(file) if file.is_dir() else file.unlink()


@pytest.fixture
def folder(run: Path, tmp_path: Path) -> Path:
    """A copy of a run's record."""
    shutil.copy(run / SETTINGS, tmp_path)
    return tmp_path


@pytest.fixture
def loop() -> Loop:
    """A loop around a very small learner, which has taken a step."""
    torch.manual_seed(0)
    learner: Any = nn.Linear(3, 2)
    learner.loss_names, learner.network = ("loss",), nn.Identity()
    optimizer = AdamP(learner.parameters(), lr=0.1)
    learner(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    fabric = SimpleNamespace(device=torch.device("cpu"), autocast=nullcontext)
    parts: Any = SimpleNamespace(learner=learner, optimizer=optimizer, settings=Settings(), fabric=fabric)
    parts.folder = Path("run")
    return Loop(parts)


@pytest.fixture
def state() -> TrainState:
    row = {"effective_rank": 2.0, "view_agreement": 0.5}
    plan, sums = torch.tensor([[0, 1], [2, 0]]), torch.zeros(1)
    return TrainState(("a", "b", "c"), ("d",), plan, sums, row, epoch=1, step=1, history=[{"epoch": 1, **row}])


@pytest.fixture
def checkpoint(tmp_path: Path, loop: Loop, state: TrainState) -> Path:
    parts = {"learner": loop.learner.state_dict(), "optimizer": loop.parts.optimizer.state_dict()}
    save_checkpoint(tmp_path / CHECKPOINT, parts, state)
    return tmp_path / CHECKPOINT


def test_a_damaged_record_is_refused_or_read_as_what_it_says(folder: Path) -> None:
    file = folder / SETTINGS
    whole = read_record(folder)
    for content in damages(file.read_bytes(), 60):
        file.write_bytes(content)
        if not refused(lambda: read_record(folder), file):
            assert asdict(read_record(folder)).keys() == asdict(whole).keys()


def test_a_record_holds_each_setting_once_and_comes_back_as_it_was(run: Path, tmp_path: Path) -> None:
    saved = json.loads((run / SETTINGS).read_text())
    assert saved["settings"]["batch_size"] == 8
    assert saved["asked"] == {"cache_side": None, "compile": None, "freeze_batch_norm": None}, (
        "what was left open, and nothing that was not"
    )
    assert saved["reasons"].keys() >= saved["asked"].keys()
    assert not saved["settings"].keys() & saved.keys() - {"eval"}
    record = read_record(run)
    assert (record.requested.cache_side, record.settings and record.settings.cache_side) == (None, 48)
    assert {choice.name: choice.value for choice in record.choices}["crop"] == 32
    for one in (record, replace(record, settings=None, preprocessing=None, choices=(), backbone=None, pretrained=None)):
        write_record(tmp_path, one)
        assert read_record(tmp_path) == one


def test_a_record_from_before_settings_were_held_once_is_read(folder: Path) -> None:
    record = read_record(folder)
    (folder / SETTINGS).write_text(json.dumps(asdict(record)))
    assert read_record(folder) == record


def test_every_value_of_a_record_that_is_of_the_wrong_kind_or_missing_is_refused(folder: Path) -> None:
    file = folder / SETTINGS
    saved = json.loads(file.read_text())
    needed = {
        "settings",
        "asked",
        "reasons",
        "images",
        "labeled",
        "unlabeled",
        "eval",
        "own_backbone",
        "allow_skipped",
        "tensorboard",
    }
    for name in needed:
        file.write_text(json.dumps({key: value for key, value in saved.items() if key != name}))
        assert refused(lambda: read_record(folder), file), name
    cases: list[tuple[str | None, str]] = [
        (part, name) for part in ("settings", "asked", "preprocessing") for name in saved[part]
    ]
    cases += [(None, name) for name in saved]
    refusals = 0
    for part, name in cases:
        for other in OTHERS:
            changed = json.loads(json.dumps(saved))
            (changed[part] if part else changed)[name] = other
            file.write_text(json.dumps(changed))
            if refused(lambda: read_record(folder), file):
                refusals += 1
            else:
                json.dumps(asdict(read_record(folder)))  # it is of the right kind, so that it can be written again
    assert refusals > len(cases) * len(OTHERS) / 2


def test_a_record_whose_choices_are_open_or_no_whole_numbers_is_refused(folder: Path) -> None:
    file = folder / SETTINGS
    saved = json.loads(file.read_text())
    wrong: list[tuple[str, str, Any]] = [("settings", name, None) for name in ("epochs", "pooling", "momentum", "lr")]
    wrong += [("preprocessing", name, value) for name in ("size", "resize") for value in (float("inf"), 73.5)]
    for part, name, value in wrong:
        file.write_text(json.dumps(saved | {part: saved[part] | {name: value}}))
        assert refused(lambda: read_record(folder), file), (name, value)
    file.write_text(json.dumps(saved | {"settings": {"x": 1}}))
    assert refused(lambda: read_record(folder), file)


def test_pipes_devices_and_folders_in_place_of_files_are_refused_at_once(folder: Path, state: TrainState) -> None:
    for _ in replacements(folder, SETTINGS):
        assert refused(lambda: read_record(folder), folder)
    for name in (CHECKPOINT, PARTIAL):
        for _ in replacements(folder, name):
            assert not (folder / name).exists() or refused(lambda: load_checkpoint(folder), folder / name)
    for _ in replacements(folder, "model.json"):
        assert not is_finished(folder)
        assert refused(lambda: read_description(folder), folder)
    for _ in replacements(folder, TIMING):
        Logbook(folder).resume(state)
    for _ in replacements(folder, "squash-0.log"):
        assert refused(lambda: read_log(folder / "squash-0.log", {}, mapped=True), folder / "squash-0.log")


def test_a_damaged_checkpoint_is_never_used(checkpoint: Path, loop: Loop) -> None:
    whole = read_checkpoint(checkpoint)
    content = checkpoint.read_bytes()
    refusals = 0
    for damaged in damages(content, 100):
        checkpoint.write_bytes(damaged)
        if refused(lambda: read_checkpoint(checkpoint), checkpoint):
            refusals += 1
            continue
        again = read_checkpoint(checkpoint)  # where the archive has room that nothing is read from
        assert same(again.parts, whole.parts)
        assert same(vars(again.state), vars(whole.state))
    assert refusals > 100
    checkpoint.write_bytes(content)
    loop.restore(read_checkpoint(checkpoint))


def test_a_damaged_state_in_mid_epoch_is_passed_over(checkpoint: Path, tmp_path: Path) -> None:
    content = bytearray(checkpoint.read_bytes())
    content[content.index(b"effective_rank") + 3] ^= 1
    (tmp_path / PARTIAL).write_bytes(content)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert (found.file, found.passed_over) == (checkpoint, tmp_path / PARTIAL)
    checkpoint.unlink()
    assert refused(lambda: load_checkpoint(tmp_path), tmp_path / PARTIAL)


def test_every_part_of_a_checkpoint_that_is_missing_or_of_the_wrong_kind_is_refused(
    checkpoint: Path, loop: Loop
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    others: list[Any] = ["missing", None, "text", -5, [], {}, torch.zeros(7), torch.zeros(2, 2)]

    def restore() -> None:
        loop.restore(read_checkpoint(checkpoint))

    places: list[tuple[Any, ...]] = [(), ("progress",), ("progress", "start"), ("random",), ("optimizer",)]
    places += [("optimizer", "param_groups", 0), ("optimizer", "state"), ("optimizer", "state", 0)]
    for place in places:
        for name in find(content, place):
            if name in ("lr", "view_agreement", "cuda"):
                continue  # set anew in every epoch; a number like any other; of no use without a GPU
            for other in others:
                changed = torch.load(checkpoint.with_suffix(".whole"), weights_only=True) if place else dict(content)
                inner = find(changed, place)
                inner[name] = other
                if isinstance(other, str) and other == "missing":
                    if name == "averaged":
                        continue  # checkpoints of earlier versions lack it
                    del inner[name]
                if kind_of(other) == kind_of(find(content, place)[name]):
                    continue
                torch.save(changed, checkpoint)
                assert refused(restore, checkpoint), (place, name, other)


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> None:
    """A second copy of the checkpoint, to begin each change from."""
    if "checkpoint" in request.fixturenames:
        file = request.getfixturevalue("checkpoint")
        shutil.copy(file, file.with_suffix(".whole"))


def find(content: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        content = content[step]
    return content


def kind_of(value: Any) -> Any:
    return (type(value), getattr(value, "shape", None))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def test_a_pickle_in_place_of_a_checkpoint_is_refused_without_a_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    import pickle

    for content in (pickle.dumps({"format": 2}), pickle.dumps(np.zeros(3)), pickle.dumps(random.Random())):
        (tmp_path / CHECKPOINT).write_bytes(content)
        assert refused(lambda: load_checkpoint(tmp_path), tmp_path / CHECKPOINT)
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


def test_a_file_without_permission_is_not_called_damaged(
    checkpoint: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(files, "_open_at_once", deny)
    for read in (
        lambda: load_checkpoint(checkpoint.parent),
        lambda: read_record(folder),
        lambda: read_description(folder),
    ):
        with pytest.raises(SelftaughtError, match=r"cannot read .*: Permission denied$"):
            read()


def test_what_there_is_too_little_memory_for_is_not_called_damaged(
    checkpoint: Path, loop: Loop, embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = read_checkpoint(checkpoint)
    write_vectors(tmp_path / "v.npy", Vectors(tmp_path, ("a",), torch.zeros(1, 2), "m"))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory")

    embedder.save(tmp_path / "model")
    for place in ("torch.load", "numpy.load", "selftaught.training.loop.restore_optimizer"):
        monkeypatch.setattr(place, fail)
    monkeypatch.setattr(type(embedder.encoding), "embed", fail)
    works: list[Callable[[], object]] = [
        lambda: read_checkpoint(checkpoint),
        lambda: loop.restore(known),
        lambda: read_state(checkpoint),
        lambda: read_vectors(tmp_path / "v.npy"),
        lambda: embedder.seeing(64),
    ]
    for work in works:
        with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
            work()
    for place in ("load_file", "EmbeddingNetwork", "Encoder.forward"):
        with monkeypatch.context() as patch:
            patch.setattr(f"selftaught.model_files.{place}", fail)
            with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
                Embedder.load(tmp_path / "model")


def test_a_damaged_log_of_times_is_left_behind(tmp_path: Path, state: TrainState) -> None:
    for content in damages(b'{"epoch": 1, "seconds": 2.5}\n{"epoch": 2, "seconds": 2.5}\n', 30):
        (tmp_path / TIMING).write_bytes(content)
        Logbook(tmp_path).resume(state)


def test_damaged_features_are_never_used(tmp_path: Path) -> None:
    about: dict[str, Any] = {"model": "m", "root": "r", "dim": 4}
    log = VectorLog(tmp_path / "squash-0.log", **about)
    rows = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    for number, block in enumerate(rows):
        log.add(LoggedBatch([(f"{number} {i}", (1, i)) for i in range(5)], block, []))
    log.close()
    content, kept = log.path.read_bytes(), []
    for damaged in (content, *damages(content, 100)):
        log.path.write_bytes(damaged)
        found, _ = read_log(log.path, about, mapped=True) or ([], 0)
        for number, batch in enumerate(found):
            assert batch.files[-1] == (f"{number} 4", (1, 4))
            assert (batch.vectors == rows[number]).all()
        kept.append(len(found))
    assert (kept[0], set(kept[1:])) == (3, {0, 1, 2})


def test_whatever_describes_a_model_a_run_is_finished_or_not(tmp_path: Path, run: Path) -> None:
    assert is_finished(run)
    for content in damages((run / "model.json").read_bytes(), 30):
        (tmp_path / "model.json").write_bytes(content)
        assert is_finished(tmp_path) in (True, False)


def test_a_run_killed_before_its_record_was_in_place_can_be_started(folder: Path, tmp_path: Path) -> None:
    record = read_record(folder)
    run = tmp_path / "new"
    run.mkdir()
    (run / ".settings.json.123.tmp").write_text("{")
    (run / ".lock").touch()
    (run / SKIPPED).touch()
    with create_run(run, record):
        assert sorted(path.name for path in run.iterdir()) == [".lock", SETTINGS]
        assert read_record(run) == record
        assert not has_begun(run)
    with pytest.raises(UsageError, match=r"exists already and is not empty: .*--resume"), create_run(run, record):
        pass


def test_a_locked_folder_stays_locked_whoever_asks_for_it(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        for _ in range(2):
            with pytest.raises(UsageError, match="another process is at work"), lock_folder(tmp_path):
                pass
    with lock_folder(tmp_path):
        pass


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a file in use cannot be deleted")
@pytest.mark.parametrize("gone", ["file", "folder"])
def test_a_lock_whose_file_its_last_holder_deletes_meanwhile_is_taken_anew_or_refused(
    gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    folder, lock = tmp_path / "run", fcntl.flock
    folder.mkdir()

    def lock_late(file: int, how: int) -> None:
        monkeypatch.undo()
        (folder / ".lock").unlink()
        if gone == "folder":
            folder.rmdir()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    if gone == "folder":
        with pytest.raises(UsageError, match="run cannot be written to: No such file"), lock_folder(folder):
            pass
        assert not folder.exists()
        return
    with lock_folder(folder):
        assert (folder / ".lock").exists()
        with pytest.raises(UsageError, match="another process is at work"), lock_folder(folder):
            pass
    assert not list(folder.iterdir()), "no lock is left behind"


def test_a_folder_goes_again_unless_something_was_kept_in_it(tmp_path: Path) -> None:
    for name in ("empty", "full"):
        with claim_folder(tmp_path / name, "the folder", "give another"):
            if name == "full":
                (tmp_path / name / "kept").touch()
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["full", "full/kept"]


def test_a_checkpoint_says_where_it_is_from(checkpoint: Path) -> None:
    found = load_checkpoint(checkpoint.parent)
    assert isinstance(found, Checkpoint)
    assert found.passed_over is None
    assert load_checkpoint(checkpoint.parent / "nowhere") is None
