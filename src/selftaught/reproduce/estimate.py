"""How long a job will take: from finished jobs if there are any, otherwise from a few timed steps."""

import time
from collections.abc import Callable, Sequence

import torch

from selftaught.devices import choose_device
from selftaught.networks import OFFLINE_BACKBONE, Encoder, build_backbone, hub_reachable, offline_weights
from selftaught.reproduce.folders import run_seconds, status
from selftaught.reproduce.plan import Job

_TIMED_STEPS = 2
_IMAGES = {"cuda": 60}
"""Images in a timed step; 4 on a CPU, where each costs about as much as in a full batch."""


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
    """Seconds that one training image costs per epoch, from timed steps on random input.

    Two views pass forward and backward through the student and forward through the teacher; then the image is embedded
    once more for the next batches, and so is, on average, one test image. Reading images is not included.
    """
    if backbone == "auto" and offline_weights() is not None and not hub_reachable():
        backbone = OFFLINE_BACKBONE  # "auto" will fall back to it
    built = build_backbone(backbone, "none")
    encoder = Encoder(built.module, built.preprocessing, freeze_batch_norm=True).to(device)
    images, size = _IMAGES.get(device.type, 4), built.preprocessing.size
    rows = torch.randint(0, 256, (2 * images, 3, size, size), dtype=torch.uint8, device=device)
    half = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)

    def step() -> float:
        began = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            encoder(rows).sum().backward()
            with torch.no_grad():
                encoder(rows)
                encoder(rows)  # one row per training image, one per test image
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    step()  # the first one is slow
    return min(step() for _ in range(_TIMED_STEPS)) / images
