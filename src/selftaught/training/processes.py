"""One process or many: what ``torchrun`` or ``fabric run`` has started, how it is connected, how it ends."""

import atexit
import logging
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from inspect import signature
from typing import Any

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from selftaught.console import duration
from selftaught.errors import EndedElsewhere, Interrupted, SelftaughtError, UsageError, one_line, printable
from selftaught.launched import Launched, launched
from selftaught.parallel import connection_lost, exit_code, first_says, rank, world
from selftaught.training.fabric import DDPStrategy, Fabric, TorchElasticEnvironment

FABRIC_VARIABLES = ("LT_CLI_USED", "LT_ACCELERATOR", "LT_STRATEGY", "LT_DEVICES", "LT_NUM_NODES", "LT_PRECISION")
"""Variables that ``fabric run`` sets. They are removed, since Fabric would find that they contradict our settings."""
LONGEST_WAIT = timedelta(hours=2)
"""The wait for a living process, which may have to list or score a million images. A dead one is noticed at once."""
NAME_WAIT = 30.0
"""Seconds within which the name of the first machine must become known; a cluster may still be starting it."""
ANSWER_WAIT = 60.0
"""Seconds within which process 0 must answer."""
SAVING = timedelta(seconds=25)
"""How long process 0 may take to save before the others end; after 30 s ``torchrun`` kills it."""
SAYING = timedelta(seconds=3)
"""How long process 0 may take to say why it ends before others say it too."""
_BUFFERS = ("forward_sync_buffers", "broadcast_buffers")  # its name in newer and older versions of PyTorch
DDP_OPTIONS: dict[str, Any] = {
    # Buffers of learners are equal in all processes and can be large, so they are not copied in every step.
    next(name for name in _BUFFERS if name in signature(DistributedDataParallel).parameters): False,
    # Every step has the same graph, so unused layers of a backbone are looked for only once.
    "static_graph": True,
}


def join_processes() -> None:
    """Connect with the other processes, if there are any."""
    found = launched()
    if world() > 1:
        _check_backend()
    if found is None or world() > 1:
        return
    for option, instead in (("precision", "--set precision=… of selftaught"), ("strategy", "--strategy ddp")):
        given = os.environ.get(f"LT_{option.upper()}", "ddp")
        if given != "ddp":
            raise UsageError(f"fabric run --{option} {given} is not for selftaught: use {instead}")
    for name in FABRIC_VARIABLES:
        os.environ.pop(name, None)
    if torch.cuda.is_available() and found.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(found.local_rank)
    _check_name(os.environ["MASTER_ADDR"])
    try:
        reached = _reach_first(found)
        _ddp("cpu", found, "32-true").launch()
        del reached  # by now, PyTorch has a connection of its own
    except (RuntimeError, ValueError, OSError) as error:
        raise SelftaughtError(f"the {found.processes} processes could not be connected: {one_line(error)}") from None
    atexit.register(_leave)


def _check_name(name: str) -> None:
    """Raise an error if no machine of this name is known: PyTorch would try to connect for hours."""
    deadline = time.monotonic() + NAME_WAIT
    while True:
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError) as error:
            if time.monotonic() > deadline:
                why = f"MASTER_ADDR is {printable(name)!r}, which is not the name of a machine that is known here"
                raise UsageError(f"{why} ({one_line(error)}): start with torchrun, or set it") from None
            time.sleep(1)
        else:
            return


def _reach_first(found: Launched) -> list[object]:
    """The connection to process 0, none if it failed at once; raises an error if there is no answer.

    PyTorch would wait for hours, or forever where something listens and is silent.
    """
    name, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    serves = found.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else torchrun does
    reached: list[object] = []

    def connect() -> None:
        with suppress(RuntimeError, ValueError, TypeError):  # it will be raised again, and told, in the main thread
            reached.append(
                dist.TCPStore(  # type: ignore[attr-defined]
                    name, port, is_master=serves, timeout=LONGEST_WAIT, wait_for_workers=False, multi_tenant=True
                )
            )

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(ANSWER_WAIT)
    if thread.is_alive():
        raise SelftaughtError(
            f"the first of the {found.processes} processes does not answer at MASTER_ADDR {printable(name)!r}, "
            f"MASTER_PORT {port}: start it too, and check both"
        )
    return reached


def _check_backend() -> None:
    """Raise an error unless the processes, which the caller has connected, can send tensors in the CPU's memory."""
    backends = dist.get_backend_config()
    if "cpu:" not in backends:
        raise UsageError(
            f"the processes are connected by {printable(backends)} alone, but training also sends what lies in the "
            'memory of CPUs: connect them with init_process_group("cpu:gloo,cuda:nccl")'
        )


def make_fabric(device: torch.device, precision: Any) -> Fabric:
    """Fabric with devices and precision for one stage of training; each process takes a device of that type."""
    _quiet_fabric()
    found = launched() if world() > 1 else None
    if found is not None:
        fabric = _ddp(device.type, found, precision)
        fabric.launch()
        return fabric
    accelerator = device.type if device.type in ("cuda", "mps") else "cpu"
    return Fabric(accelerator=accelerator, devices=1 if device.index is None else [device.index], precision=precision)


def ending(error: BaseException, go_on: str) -> BaseException:
    """The error with which one of several processes ends, such that each failure is printed only once.

    Every process that fails calls this with its own error; ``go_on``: what to do, in words.
    """
    if world() == 1:
        return error
    if threading.current_thread() is threading.main_thread():  # the launcher will send a signal; this process is ending
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    if connection_lost(error):
        if rank():
            return EndedElsewhere()
        silent = "timed out" in str(error).lower() and f"did not answer for {duration(LONGEST_WAIT.total_seconds())}"
        error = SelftaughtError(f"another of the {world()} processes {silent or 'ended'}; {go_on}")
    patience = SAVING if isinstance(error, (Interrupted, KeyboardInterrupt)) else SAYING
    if not isinstance(error, EndedElsewhere) and first_says(str(error), patience):
        return EndedElsewhere(exit_code(error))
    return error


def _ddp(accelerator: str, found: Launched, precision: Any) -> Fabric:
    _quiet_fabric()
    mixed = torch.cuda.is_available() and dist.is_nccl_available()
    strategy = DDPStrategy(
        cluster_environment=TorchElasticEnvironment(),
        process_group_backend="cpu:gloo,cuda:nccl" if mixed else "gloo",
        timeout=LONGEST_WAIT,
        **DDP_OPTIONS,
    )
    return Fabric(
        accelerator=accelerator,
        devices=found.on_this_machine,
        num_nodes=found.machines,
        strategy=strategy,
        precision=precision,
    )


def _quiet_fabric() -> None:
    own = Fabric.__module__.rpartition(".")[0]  # the choices already say what Fabric would print
    logging.getLogger(own).setLevel(logging.WARNING)


def _leave() -> None:
    with suppress(RuntimeError, ValueError, AssertionError):
        dist.destroy_process_group()
