"""The one training loop, for every method: epochs of batches, measured, saved, resumable at any step."""

import math
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor

from selftaught.data import ImageFolder, ImageReader, ViewRequest, view_seed, view_seeds
from selftaught.errors import Collapse, ImageError, Interrupted, SelftaughtError, UsageError, printable
from selftaught.learners import Learner
from selftaught.networks import parameter_groups
from selftaught.parallel import agreed, any_asked, first_decides, rank, shard
from selftaught.recipes import Settings
from selftaught.retrieval import approximate_nearest, recall_against_exact
from selftaught.training.adamp import AdamP
from selftaught.training.checkpoint import (
    CHECKPOINT,
    PARTIAL,
    Progress,
    load_checkpoint,
    save_checkpoint,
    set_random_states,
)
from selftaught.training.compiled import compile_learner, uncompile
from selftaught.training.health import symptom
from selftaught.training.interrupts import Interrupts
from selftaught.training.logbook import Logbook, epoch_line
from selftaught.training.measure import Measurements
from selftaught.training.progress import Reporter, duration
from selftaught.training.readback import Readback
from selftaught.training.snapshots import write_snapshot

EPOCH_INTERVAL = 60.0
"""Seconds after which the end of an epoch is saved; short epochs would take longer to save than to train."""
RECALL_SAMPLE = 1000
"""Queries on which an approximate search is compared with the exact one."""
SAVE_INTERVAL = 300.0
"""Seconds after which an epoch under way is saved, so that a kill costs no more than that."""


class Loop:
    """Trains a learner on a folder of images, from wherever ``progress`` says it is."""

    def __init__(
        self,
        run: Path,
        learner: Learner,
        images: ImageFolder,
        settings: Settings,
        fabric: Fabric,
        reader: ImageReader,
        measurements: Measurements,
        logbook: Logbook,
        reporter: Reporter,
        interrupts: Interrupts,
        resumed_as: Path | None = None,
    ) -> None:
        """``resumed_as``: the run to name in "go on with", if this one is a part of it."""
        self.run, self.learner, self.images, self.settings = run, learner, images, settings
        self.fabric, self.reader, self.measurements = fabric, reader, measurements
        self.logbook, self.reporter, self.interrupts = logbook, reporter, interrupts
        groups = parameter_groups(learner.network, settings.lr, settings.head_lr)
        groups += learner.extra_groups(settings.head_lr)
        self.rates = [group["lr"] for group in groups]
        optimizer = AdamP(
            groups,
            betas=(0.9, 0.999),
            weight_decay=settings.weight_decay,
            nesterov=True,
        )
        self.module, self.optimizer = fabric.setup(learner, optimizer)
        learner.train()
        self.saved_at = self.kept_at = time.monotonic()
        self._command = f"selftaught train --resume {shlex.quote(printable(resumed_as or run))}"

    def begin(self) -> Progress:
        """The state before the first step."""
        heads = self.measurements.training_set(self.images)
        start, probe = self.measurements.signals(self.images, heads, None)
        start |= self.measurements.scores()
        if self.settings.search == "approximate":
            self._tell_recall(heads[self.learner.batch_head])
        progress = Progress(
            files=self.images.files,
            labeled=self.measurements.labeled.files if self.measurements.labeled else (),
            plan=self._plan(heads, epoch=0),
            sums=torch.zeros(len(self.learner.loss_names)),
            start=start,
            probe=probe,
        )
        self._keep_snapshot(0)
        self._keep(progress)
        return progress

    def restore(self, state: dict[str, Any]) -> None:
        try:
            self.learner.load_state_dict(state["learner"])
        except RuntimeError:
            raise UsageError(
                f"the backbone is not the one that the checkpoint in {printable(self.run)} was made with"
            ) from None
        self.optimizer.load_state_dict(state["optimizer"])
        set_random_states(state["random"])  # last: whatever is built before draws from them

    def go(self, progress: Progress) -> None:
        """Train until the last epoch is done."""
        steps, epochs = len(progress.plan), self.settings.epochs
        done = progress.epoch * steps + progress.step
        try:
            if self.settings.compile and progress.epoch < epochs:
                self._compile()
            with self.reporter.work("training", epochs * steps, done) as tell:
                while progress.epoch < epochs:
                    began, images = time.monotonic(), progress.plan[progress.step :].numel()
                    self._set_rates(progress.epoch)
                    for word in self._steps(progress):
                        tell(1, word)
                    stepped = time.monotonic() - began
                    self._finish_epoch(progress)
                    self.logbook.timing(progress.epoch, images, stepped, time.monotonic() - began)
        except Interrupted:
            self._save_partial(progress)
            raise self._stopped(progress, "and saved") from None
        except Collapse:
            raise
        except SelftaughtError as error:
            with suppress(SelftaughtError):  # the disk may be what is wrong
                self._save_partial(progress)
            raise SelftaughtError(f"{error}; when that is mended, go on with: {self._command}") from None
        except KeyboardInterrupt:
            raise self._stopped(progress, "at once; what was saved before is kept") from None
        finally:
            uncompile(self.learner)

    def _compile(self) -> None:
        """Only now: all images are known to be readable, and their readers run, which compilers would disturb."""
        assert self.settings.batch_size is not None
        sizes = self.settings.batch_size, self.measurements.batch_size
        with self.interrupts.at_once():  # a compiler whose helpers are gone would wait for them forever
            compiled = compile_learner(self.learner, self.reader, self.fabric, *sizes, self.reporter)
        self.measurements.compiled = compiled

    def _steps(self, progress: Progress) -> Iterator[str]:
        """The remaining steps of an epoch; yields a word on each for the progress line."""
        device, size = self.fabric.device, progress.plan.shape[1]
        plan, sums = progress.plan.to(device), progress.sums.to(device)
        recent, own = Readback(), shard(size)
        first, began = progress.step, time.monotonic()
        batches = self.reader.read(self._requests(progress.plan, progress.epoch, first))
        for step, batch in enumerate(batches, first):
            if batch.failures:
                position, reason = batch.failures[0]
                path = self.images.path(int(progress.plan[step, own[position]]))
                raise ImageError(f"{printable(path)} could be read before and cannot be now ({reason})")
            losses = self._step(batch.images.to(device, non_blocking=True), plan[step])
            sums += losses
            progress.sums, progress.step = sums, step + 1
            recent.offer(losses)
            lost = recent.values is not None and not all(map(math.isfinite, recent.values))
            if any_asked(self.interrupts.asked or lost):  # the first to know of either tells the other processes
                if not bool(torch.isfinite(sums).all()):
                    raise self._collapse(progress, "the loss is no longer a number")
                raise Interrupted("interrupted")
            if time.monotonic() - self.saved_at > SAVE_INTERVAL:
                self._save_partial(progress)
            pace = (step + 1 - first) / (time.monotonic() - began)
            yield self._word(progress, recent, pace, pace * size)

    def _step(self, images: Tensor, indices: Tensor) -> Tensor:
        views = images.shape[1]
        rows = images.transpose(0, 1).flatten(0, 1)  # all first views, then all second ones
        losses = self.module(rows, indices.repeat(views))
        self.fabric.backward(losses[self.learner.loss_names[0]])
        self.learner.after_backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.learner.after_step()
        return torch.stack([losses[name].detach() for name in self.learner.loss_names])

    def _finish_epoch(self, progress: Progress) -> None:
        means = (progress.sums.cpu() / len(progress.plan)).tolist()
        row: dict[str, float] = {"epoch": progress.epoch + 1, "lr": self.optimizer.param_groups[0]["lr"]}
        row |= dict(zip(self.learner.loss_names, means, strict=True))
        if not all(map(math.isfinite, means)):
            raise self._collapse(progress, "the loss is no longer a number")
        heads = self.measurements.training_set(self.images)
        signals, probe = self.measurements.signals(self.images, heads, progress.probe)
        row |= signals
        problem = symptom(progress.start, row, len(self.images), self.learner.groups_images)
        if problem:
            raise self._collapse(progress, problem)
        epoch, last = progress.epoch + 1, self.settings.epochs
        if epoch % self.settings.eval_every == 0 or epoch == last:
            row |= self.measurements.scores()
        self._keep_snapshot(epoch)
        plan = self._plan(heads, epoch) if epoch < last else progress.plan
        # Nothing may come between these: up to here an interrupt leaves the state at the end of the last step.
        progress.history.append(row)
        progress.epoch, progress.step, progress.plan, progress.probe = progress.epoch + 1, 0, plan, probe
        progress.sums = torch.zeros_like(progress.sums)
        if epoch == last or time.monotonic() - self.kept_at > EPOCH_INTERVAL:
            self._keep(progress)
        self.logbook.write(progress)
        self.logbook.board(row)
        self.reporter.say(epoch_line(row, self.settings.epochs))

    def _plan(self, heads: dict[str, Tensor], epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(view_seed(self.settings.seed, epoch))
        return agreed(self.learner.batches(heads[self.learner.batch_head], generator))

    def _tell_recall(self, rows: Tensor) -> None:
        some = torch.linspace(0, len(rows) - 1, min(RECALL_SAMPLE, len(rows)), device=rows.device).long()
        _, found = approximate_nearest(rows[some], rows, self.settings.neighbors - 1, exclude=some)
        recall = recall_against_exact(rows[some], rows, found, exclude=some)
        self.reporter.say(f"the approximate search finds {recall:.1%} of the neighbors that an exact one would")

    def _requests(self, plan: Tensor, epoch: int, first: int) -> Iterator[list[ViewRequest]]:
        seed = self.settings.seed
        for step in range(first, len(plan)):
            batch = plan[step].tolist()
            seeds = view_seeds(len(batch), seed, epoch, step)
            yield [
                ViewRequest(self.images.path(batch[position]), "random", seeds[position])
                for position in shard(len(batch))
            ]

    def _set_rates(self, epoch: int) -> None:
        cosine = (1 + math.cos(math.pi * epoch / self.settings.epochs)) / 2
        factor = cosine if self.settings.schedule == "cosine" else 1.0
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def _keep_snapshot(self, epoch: int) -> None:
        every = self.settings.snapshots
        if rank() == 0 and every and (epoch % every == 0 or epoch == self.settings.epochs):
            write_snapshot(self.run, epoch, self.learner)

    def _keep(self, progress: Progress) -> None:
        """Save the end of an epoch, to which training returns if it collapses."""
        self._save(CHECKPOINT, progress)
        self._forget_partial()
        self.kept_at = self.saved_at

    def _save(self, name: str, progress: Progress) -> None:
        self.saved_at = time.monotonic()
        if rank():
            return
        state = {"learner": self.learner.state_dict(), "optimizer": self.optimizer.state_dict()}
        save_checkpoint(self.run / name, state, progress)

    def _save_partial(self, progress: Progress) -> None:
        if not bool(torch.isfinite(progress.sums).all()):
            raise self._collapse(progress, "the loss is no longer a number")
        self._save(PARTIAL, progress)

    def _kept_epoch(self) -> int:
        kept = load_checkpoint(self.run)
        return kept[1].epoch if kept else 0

    def _forget_partial(self) -> None:
        if rank() == 0:
            (self.run / PARTIAL).unlink(missing_ok=True)

    def _word(self, progress: Progress, recent: Readback, pace: float, images: float) -> str:
        left = (self.settings.epochs - progress.epoch) * len(progress.plan) - progress.step
        seconds = left / pace + self.logbook.seconds_beside_steps * (self.settings.epochs - progress.epoch)
        names = self.learner.loss_names[1:] or self.learner.loss_names  # the parts, where the whole has any
        pairs = zip(names, (recent.values or ())[-len(names) :], strict=False)
        losses = " ".join(f"{name} {value:.4f}" for name, value in pairs)
        return (
            f"epoch {progress.epoch + 1}/{self.settings.epochs} step {progress.step}/{len(progress.plan)}, "
            f"{duration(seconds)} left, {images:.0f} images/s, {losses}"  # a narrow terminal cuts off the end
        )

    def _stopped(self, progress: Progress, how: str) -> Interrupted:
        return Interrupted(
            f"stopped in epoch {progress.epoch + 1} of {self.settings.epochs} {how}; go on with: {self._command}"
        )

    def _collapse(self, progress: Progress, problem: str) -> Collapse:
        self._forget_partial()
        good = first_decides(self._kept_epoch)
        rates = f"--lr (now {self.settings.lr:g})"
        if self.settings.head_lr != self.settings.lr:
            rates += f" or head_lr (now {self.settings.head_lr:g})"
        return Collapse(
            f"training collapsed in epoch {progress.epoch + 1}: {problem}; the state after epoch {good} "
            f"is kept in {printable(self.run)}; try a lower {rates}, a larger --batch-size, "
            "or pretrained weights"
        )
