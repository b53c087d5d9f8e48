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
    if any(name not in os.environ for name in VARIABLES) or int(os.environ["WORLD_SIZE"]) < 2:
        return None
    processes = int(os.environ["WORLD_SIZE"])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    machines = -(-processes // here)
    if here * machines != processes:
        raise UsageError(f"{processes} processes are not {here} on each machine: start equally many on each")
    return Launched(processes, here, machines, int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]))
