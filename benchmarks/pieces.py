"""The pieces of a training step and of an epoch, each timed alone, and the ceiling that the networks set."""

import statistics
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from selftaught.console import Interrupts, Reporter
from selftaught.data import ImageFolder, ImageReader, ViewRequest, view_seeds
from selftaught.learners import STML, STMLSettings
from selftaught.method import MovingAverage
from selftaught.networks import Backbone, Encoder, parameter_groups
from selftaught.training.assemble import make_reader
from selftaught.training.compile import compile_parts
from selftaught.training.evaluation import EMBEDDED_ON_CPU, EMBEDDED_ON_GPU, Evaluation
from selftaught.training.optimizer import AdamP
from selftaught.training.processes import make_fabric


def seconds(call: Callable[[], object], device: torch.device, calls: int, rounds: int) -> float:
    """The median over rounds of the mean time of a call, on the device's own clock where it has one."""
    taken: list[float] = []
    for _ in range(rounds):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize(device)
            start.record()
            for _ in range(calls):
                call()
            end.record()
            torch.cuda.synchronize(device)
            taken.append(start.elapsed_time(end) / 1000 / calls)
        else:
            began = time.perf_counter()
            for _ in range(calls):
                call()
            taken.append((time.perf_counter() - began) / calls)
    return statistics.median(taken)


class Pieces:
    """The networks of a run with its settings, their input and everything around them.

    On a GPU the encoders, the loss and the cutting of views are compiled, as in a run.
    """

    def __init__(
        self,
        backbone: Backbone,
        settings: STMLSettings,
        images: ImageFolder,
        device: torch.device,
        calls: int,
        rounds: int,
    ) -> None:
        """``settings``: without anything left open. ``calls``: how often a piece is called in each round."""
        assert settings.batch_size is not None
        self.settings, self.images, self.calls, self.rounds = settings, images, calls, rounds
        self.fabric = make_fabric(device, settings.precision)
        self.device = self.fabric.device
        self.inputs, self.rows = backbone.preprocessing, 2 * settings.batch_size
        encoder = Encoder(backbone.module, self.inputs, bool(settings.freeze_batch_norm))
        self.learner = STML(encoder, settings, len(images)).to(self.device).train()
        self.student, self.teacher = self.learner.network, self.learner.teacher
        if device.type == "cuda":
            compile_parts(self.learner, device)
        self.resident = self._random(self.rows, self.inputs.size)
        self.embedded = EMBEDDED_ON_GPU if device.type == "cuda" else EMBEDDED_ON_CPU

    def ceiling(self) -> tuple[float, float]:
        """Seconds of a step of the networks alone, and of embedding one image."""

        def step() -> None:
            self._teach()
            self._learn()

        whole = self._random(self.embedded, self.inputs.squash)
        step()
        for_step = seconds(step, self.device, self.calls, self.rounds)
        self.student.eval()
        self._embed(whole)
        for_image = seconds(lambda: self._embed(whole), self.device, self.calls, self.rounds) / self.embedded
        self.student.train()
        return for_step, for_image

    def of_step(self) -> dict[str, float]:
        """Milliseconds of the pieces of a step."""
        learner = self.learner
        taken = {"input": self._input(), "student": self._timed(self._learn), "teacher": self._timed(self._teach)}
        f, g = (z.detach().requires_grad_() for z in self._learn().values())
        teacher = self._teach()["g"]
        ids = torch.arange(self.rows // 2, device=self.device).repeat(2)

        def compare() -> None:
            torch.autograd.grad(learner.loss({"f": f, "g": g, "teacher": teacher}, ids)["loss"], (f, g))

        taken["similarity + loss"] = self._timed(compare)
        self._learn()
        groups = parameter_groups(self.student, 0.0, 0.0)  # rates of 0: the weights are still needed
        optimizer = AdamP(groups, weight_decay=self.settings.weight_decay, nesterov=True)
        taken["optimizer"] = self._timed(optimizer.step)
        taken["teacher update"] = self._timed(MovingAverage(self.teacher, self.student, 1.0).update)
        return taken

    def of_epoch(self, labeled: ImageFolder | None) -> dict[str, float]:
        """Milliseconds of what comes between the steps of two epochs; evaluation only where there are labels."""
        learner, generator = self.learner, torch.Generator().manual_seed(0)
        reader = self._reader()
        try:
            context = SimpleNamespace(reporter=Reporter(quiet=True), interrupts=Interrupts())
            parts: Any = SimpleNamespace(
                learner=learner, fabric=self.fabric, settings=self.settings, labeled=labeled, context=context
            )
            measurements = Evaluation(parts, reader)
            measurements.compiled = self.device.type == "cuda"
            heads = measurements.training_set(self.images)

            def neighbors() -> None:
                learner.batches(measurements.training_set(self.images)["g"], generator)

            taken = {
                "neighbor pass": self._timed(neighbors, 1),
                "signals": self._timed(lambda: measurements.signals(self.images, heads), 1),
            }
            if labeled is not None:
                taken["evaluation"] = self._timed(lambda: measurements.scores(heads, measurements.labeled_set()), 1)
        finally:
            reader.close()
        return taken

    def _timed(self, call: Callable[[], object], calls: int | None = None) -> float:
        call()
        return 1000 * seconds(call, self.device, calls or self.calls, self.rounds)

    def _learn(self) -> dict[str, Tensor]:
        """What the student makes of the random images; leaves gradients behind, of the sum of it."""
        self.student.zero_grad()
        with self.fabric.autocast():
            embeddings: dict[str, Tensor] = self.student(self.resident)
        torch.cat(list(embeddings.values()), 1).mean().backward()
        return embeddings

    @torch.no_grad()
    def _teach(self) -> dict[str, Tensor]:
        with self.fabric.autocast():
            embeddings: dict[str, Tensor] = self.teacher(self.resident)
        return embeddings

    @torch.no_grad()
    def _embed(self, images: Tensor) -> None:
        with self.fabric.autocast():
            self.student(images)

    def _input(self) -> float:
        """Milliseconds until a step's views are on the device, when all images are cached."""
        reader, steps = self._reader(), self.calls
        try:
            for _ in reader.read(self._requests(-(-len(self.images) // (self.rows // 2)), whole=True)):
                pass
            waiting = reader.read(self._requests(1 + self.rounds * steps))
            next(waiting)
            return 1000 * seconds(lambda: next(waiting), self.device, steps, self.rounds)
        finally:
            reader.close()

    def _requests(self, steps: int, whole: bool = False) -> Iterator[list[ViewRequest]]:
        """Batches of random images, or of all in order."""
        size, count = self.rows // 2, len(self.images)
        generator = torch.Generator().manual_seed(0)
        for step in range(steps):
            drawn = torch.randint(count, (size,), generator=generator)
            chosen = range(step * size, min(count, (step + 1) * size)) if whole else drawn.tolist()
            seeds = view_seeds(len(chosen), step)
            yield [ViewRequest(self.images.path(i), "random", seed) for i, seed in zip(chosen, seeds, strict=True)]

    def _reader(self) -> ImageReader:
        reader = make_reader(self.settings, self.inputs, self.images.root, self.device)
        if self.device.type == "cuda":
            reader.compile(self.rows // 2)
        return reader

    def _random(self, count: int, size: int) -> Tensor:
        return torch.randint(256, (count, 3, size, size), dtype=torch.uint8, device=self.device)
