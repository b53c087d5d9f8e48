"""The plan of a table: what will be done, job by job, and how long it will take."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from selftaught.console import duration
from selftaught.devices import choose_device
from selftaught.errors import counted, printable
from selftaught.networks import OFFLINE_BACKBONE, Encoder, build_backbone, hub_reachable, offline_weights
from selftaught.reproduce.folders import run_seconds
from selftaught.reproduce.jobs import Job, incomplete_data
from selftaught.reproduce.table import Table
from selftaught.training import measure_pace

VIEWS_ON_GPU, VIEWS_ON_CPU = 120, 8
"""Views in a timed step: on a CPU, each of a few costs about as much as in a full batch."""


class Estimator:
    """Seconds per job, from the pace of its backbone on this device."""

    def __init__(self, jobs: Sequence[Job], device: str, say: Callable[[str], None]) -> None:
        self.jobs, self.device, self.say = jobs, choose_device(device), say
        self._timed: dict[str, float] = {}

    def seconds(self, job: Job) -> float:
        """About how many seconds the rest of a job takes."""
        if not job.work:
            return 0.0
        return max(0.0, self._pace(job.backbone) * job.work - run_seconds(job.folder))

    def _pace(self, backbone: str) -> float:
        """Seconds that an image costs per epoch."""
        alike = [job for job in self.jobs if job.backbone == backbone and job.work]
        done = [job for job in alike if job.state.status == "finished" and run_seconds(job.folder)]
        if done:
            return sum(run_seconds(job.folder) for job in done) / sum(job.work for job in done)
        if backbone not in self._timed:
            network = "the default backbone" if backbone == "auto" else backbone
            self.say(f"timing {network} on {self.device} to estimate how long this takes")
            self._timed[backbone] = seconds_per_image(backbone, self.device)
        return self._timed[backbone]


def seconds_per_image(backbone: str, device: torch.device) -> float:
    """Seconds that one training image costs per epoch, from timed steps; a test image is counted with it.

    Reading images is not included.
    """
    if backbone == "auto" and offline_weights() is not None and not hub_reachable():
        backbone = OFFLINE_BACKBONE  # "auto" will fall back to it
    built = build_backbone(backbone, "none")
    encoder = Encoder(built.module, built.preprocessing).to(device)
    half = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    pace = measure_pace(encoder, device, VIEWS_ON_GPU if device.type == "cuda" else VIEWS_ON_CPU, half)
    # Student and teacher see two views, the search for neighbors one; and a test image is seen.
    return 2 * pace.learn + 4 * pace.look


def print_plan(table: Table, jobs: Sequence[Job], estimator: Estimator, data: Path) -> None:
    """Print what will be done, job by job."""
    seconds = {job.folder: estimator.seconds(job) for job in jobs if job.open}
    print(f"{table.title}\n{table.note}".rstrip())
    states = Counter(job.state.status for job in jobs)
    needs = list(dict.fromkeys(n for job in jobs if job.state.status == "cannot be run" for n in job.missing))
    for job in jobs:
        print(f"  {job.title}: {_describe(job, seconds.get(job.folder, 0.0), needs)}")
    for label, why in {row.label: row.why for row in table.rows if row.why}.items():
        print(f"  {label}: not run, as {why}")
    words = [
        f"{len(seconds)} to run in about {duration(sum(seconds.values()))}",
        f"{states['finished']} finished",
        f"{states['cannot be run']} cannot be run",
    ]
    print(f"{counted(len(jobs), 'job')}: {', '.join(words)}")
    for number, need in enumerate(needs, start=1):
        print(f"  [{number}] {need}")
    for sentence in incomplete_data(jobs, data):
        print(f"  {sentence}")


def _describe(job: Job, seconds: float, needs: Sequence[str]) -> str:
    """The state of a job in words."""
    state, about = job.state, f"about {duration(seconds)}"
    match state.status:
        case "finished":
            return "finished"
        case "cannot be run":
            return f"cannot be run, see {' '.join(f'[{needs.index(need) + 1}]' for need in job.missing)}"
        case "failed":
            again = f"delete {printable(job.folder)}* to try again" if state.final else f"to run again, {about}"
            return f"failed before ({state.error}); {again}"
    return f"{'to go on with' if state.status == 'begun' else 'to run'}, {about}"
