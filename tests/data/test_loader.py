import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from several import apart, wait_until

from selftaught.data import FileReader, ReadersEnded, ViewRequest, Views, find_images
from selftaught.data.loader import AHEAD, Loader, prefetch
from selftaught.errors import SelftaughtError

VIEWS = Views(8, 9, 9)


def requests(photos: Path) -> list[list[ViewRequest]]:
    images = find_images(photos)
    return [[ViewRequest(images.path(i % len(images)), "center")] for i in range(60)]


@pytest.mark.parametrize(("number", "why"), [(signal.SIGKILL, "memory ran out"), (signal.SIGUSR2, "by signal 12")])
def test_a_reader_that_the_system_ends_is_one_sentence(
    photos: Path, number: signal.Signals, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)
    before = signal.getsignal(signal.SIGCHLD)
    reader = FileReader(VIEWS, workers=2)
    try:
        batches = reader.read(requests(photos))
        next(batches)
        assert signal.getsignal(signal.SIGCHLD) == before
        for child in multiprocessing.active_children():
            os.kill(child.pid or 0, number)
        with pytest.raises(ReadersEnded, match=rf"the system ended a process that reads images, .*{why}.*workers=N"):
            list(batches)
    finally:
        reader.close()
    assert issubclass(ReadersEnded, SelftaughtError)


def test_a_reader_that_the_system_ends_between_two_passes_is_one_sentence(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)
    reader = FileReader(VIEWS, workers=2)
    try:
        assert len(list(reader.read(requests(photos)))) == 60
        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
        with pytest.raises(ReadersEnded, match=r"the system ended a process that reads images"):
            list(reader.read(requests(photos)))
    finally:
        reader.close()


def answer_on_a_full_disk(_: list[ViewRequest]) -> torch.Tensor:
    """More than fits into the files, those of the shared memory too, that a reader may write from now on."""
    resource = pytest.importorskip("resource")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return torch.zeros(10_000)


def test_readers_that_cannot_send_what_they_read_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)
    loader = Loader(answer_on_a_full_disk, workers=1)
    try:
        with pytest.raises(ReadersEnded, match=r"the shared memory ran out .*--shm-size.*workers=N"):
            list(loader.read([[ViewRequest("", "center")]]))
    finally:
        loader.close()
    assert capfd.readouterr().err == ""


def test_readers_that_cannot_be_started_are_one_sentence_and_leave_no_processes(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[multiprocessing.Process] = []
    start = multiprocessing.Process.start

    def limited(process: multiprocessing.Process) -> None:
        if len(started) == 3:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        start(process)
        started.append(process)

    before = multiprocessing.active_children()
    monkeypatch.setattr(multiprocessing.Process, "start", limited)
    reader = FileReader(VIEWS, workers=50)
    with pytest.raises(
        ReadersEnded,
        match=r"cannot start 50 processes that read images \(Resource temporarily unavailable\).*workers=N",
    ):
        next(reader.read(requests(photos)))
    reader.close()
    assert len(started) == 3
    assert set(multiprocessing.active_children()) <= set(before)


def read_from_a_server(photos: Path, out: Path) -> None:
    """Read with processes that a server has forked, as newer versions of Python do, and wait to be killed."""
    multiprocessing.set_start_method("forkserver", force=True)
    next(FileReader(VIEWS, workers=2).read(requests(photos)))
    out.with_suffix(".new").write_text(" ".join(str(child.pid) for child in multiprocessing.active_children()))
    out.with_suffix(".new").rename(out)
    signal.pause()


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_readers_end_with_a_command_that_is_killed(photos: Path, tmp_path: Path) -> None:
    with apart(read_from_a_server, photos, tmp_path / "readers") as command:
        wait_until((tmp_path / "readers").exists, command.is_alive)
        readers = [int(reader) for reader in (tmp_path / "readers").read_text().split()]
        assert len(readers) == 2
        assert all(map(is_running, readers))
        command.kill()
        wait_until(lambda: not any(map(is_running, readers)), lambda: True)


def test_readers_do_not_hear_interrupts_from_their_first_moment_on(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a terminal reach all processes; the main one hears it when the readers are started."""
    start = multiprocessing.Process.start

    def interrupted(process: multiprocessing.Process) -> None:
        start(process)
        os.kill(process.pid or 0, signal.SIGINT)

    with monkeypatch.context() as change:
        change.setattr(multiprocessing.Process, "start", interrupted)
        reader = FileReader(VIEWS, workers=2)
        batches = reader.read(requests(photos))
        next(batches)
    try:
        assert sum(len(batch.images) for batch in batches) == 59
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    finally:
        reader.close()


def test_items_come_in_order_from_another_thread_and_only_a_few_ahead() -> None:
    made: list[int] = []
    threads = set()

    def items() -> Iterator[int]:
        for number in range(20):
            threads.add(threading.current_thread())
            made.append(number)
            yield number

    for number in prefetch(items()):
        assert len(made) <= number + 1 + AHEAD
    assert made == list(range(20))
    assert threading.current_thread() not in threads
    assert len(threads) == 1


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    found = prefetch(items())
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)


def test_who_stops_early_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    found = prefetch(iter(range(1000)))
    assert next(found) == 0
    (thread,) = set(threading.enumerate()) - before
    found.close()
    assert not thread.is_alive()
