"""Processes beside the tests': from one that has imported everything, so that they start at once."""

import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from selftaught.networks import backbones

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(
    ["selftaught.training", "selftaught.cli.main", "pytorch_metric_learning.losses", "pytorch_metric_learning.miners"]
)
PATIENCE = 600.0
"""Seconds that another process may take: as many as only one takes that hangs, however busy the machine is."""


def shrink_inputs() -> None:
    """Have the small network see 32×32 pixels from now on, which takes a quarter of the time."""
    small = replace(backbones.SMALL_PREPROCESSING, size=32, resize=0, use_size=0)
    vars(backbones)["SMALL_PREPROCESSING"] = small


@contextmanager
def apart(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """A process that works on a function of a module, killed in the end if it is still there."""
    process = START.Process(target=_begin, args=(function, *arguments))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def run_command(log: Path, *words: object) -> None:
    """The command line, in a session of its own; what it says goes to a file.

    For :func:`apart`.
    """
    os.setsid()
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(2, 1)
    sys.argv = ["selftaught", *map(str, words)]
    from selftaught.cli.main import main

    main()


def wait_until(ready: Callable[[], bool], working: Callable[[], bool]) -> None:
    """Wait for something that a process will bring about while it is working."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert working(), "it ended before"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def run_launched(count: int, folder: Path, *words: object) -> tuple[list[int], list[str]]:
    """The command line on so many processes, as a launcher starts them: how each ended and what it said."""
    folder.mkdir()
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    logs = [folder / f"{rank}.log" for rank in range(count)]
    processes = [START.Process(target=_begin, args=(_launched, r, count, port, logs[r], *words)) for r in range(count)]
    return _finish(processes), [log.read_text() for log in logs]


def in_processes(count: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What a function of a module returns on each of so many processes; an error on one is an error here."""
    folder.mkdir()
    codes = run_processes(count, folder, function, *arguments)
    failures = [file.read_text() for file in folder.glob("*.error")]
    assert not failures, failures[0]
    assert codes == [0] * count
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


def run_processes(count: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[int]:
    """The same, and only how each ended."""
    work = [(_work, rank, count, folder, function, arguments) for rank in range(count)]
    return _finish([START.Process(target=_begin, args=one) for one in work])


def _finish(processes: list[Any]) -> list[int]:
    for process in processes:
        process.start()
    try:
        deadline = time.monotonic() + PATIENCE
        for process in processes:
            process.join(max(0, deadline - time.monotonic()))
        return [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()


def _begin(function: Callable[..., Any], *arguments: Any) -> None:
    """Processes that this one starts are started as usual, not from a server of their own, which would outlive them."""
    multiprocessing.set_start_method(None, force=True)
    shrink_inputs()
    function(*arguments)


def _launched(rank: int, count: int, port: int, log: Path, *words: object) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
    torch.set_num_threads(1)
    run_command(log, *words)


def _work(rank: int, count: int, folder: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
        torch.save(function(*arguments), folder / f"{rank}.pt")
        dist.destroy_process_group()
    except BaseException:
        (folder / f"{rank}.error").write_text(traceback.format_exc())
        os._exit(1)
