"""How long a job will take: from finished jobs if there are any, otherwise from a few timed steps."""

from collections.abc import Callable, Sequence

import torch

from selftaught.devices import choose_device
from selftaught.networks import OFFLINE_BACKBONE, Encoder, build_backbone, hub_reachable, offline_weights
from selftaught.reproduce.folders import run_seconds, status
from selftaught.reproduce.plan import Job
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
        done = [job for job in alike if status(job.folder) == "finished" and run_seconds(job.folder)]
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
    return pace.per_image + pace.look  # one more, for a test image
