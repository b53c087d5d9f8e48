"""The processes that a launcher has started: how many, and which of them this one is."""

import os
from dataclasses import dataclass

from selftaught.errors import UsageError

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables in which a launcher informs each process."""


@dataclass(frozen=True)
class Launched:
    """Several processes, as their launcher has started them."""

    processes: int
    on_this_machine: int
    machines: int
    rank: int
    local_rank: int


def launched() -> Launched | None:
    """The processes that this one was started with; None if it is alone."""
    if any(name not in os.environ for name in VARIABLES):
        return None
    processes = _number("WORLD_SIZE", 1)
    if processes == 1:
        return None
    here = _number("LOCAL_WORLD_SIZE", 1) if "LOCAL_WORLD_SIZE" in os.environ else processes
    machines = -(-processes // here)
    if here * machines != processes:
        raise UsageError(f"{processes} processes are not {here} on each machine: start equally many on each")
    return Launched(processes, here, machines, _number("RANK", 0, processes - 1), _number("LOCAL_RANK", 0, here - 1))


def _number(name: str, low: int, high: int = 10**6) -> int:
    """The number in a variable that the launcher sets."""
    text = os.environ[name]
    if not text.isdecimal() or not low <= int(text) <= high:
        raise UsageError(
            f"{name} must be a number from {low} to {high}, but is {text!r}: start with torchrun, or unset it"
        )
    return int(text)
