"""Several connected processes on the CPU, as torchrun would start them, but from one that has imported everything."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(
    ["selftaught.training.train", "pytorch_metric_learning.losses", "pytorch_metric_learning.miners"]
)


def in_processes(count: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What a function of a module returns on each of so many processes; an error on one is an error here."""
    folder.mkdir()
    processes = started(count, folder, function, *arguments)
    for process in processes:
        process.join(60)
    failures = [file.read_text() for file in folder.glob("*.error")]
    assert not failures, failures[0]
    assert [process.exitcode for process in processes] == [0] * count
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


def started(count: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The same, not waited for."""
    processes = [START.Process(target=_work, args=(r, count, folder, function, arguments)) for r in range(count)]
    for process in processes:
        process.start()
    return processes


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
