"""The one training loop, for every method: epochs of batches, measured, saved, resumable at any step."""

import math
import time
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from selftaught.console import duration
from selftaught.data import ViewRequest, view_seed, view_seeds
from selftaught.errors import (
    Collapse,
    ImageError,
    Interrupted,
    SelftaughtError,
    UsageError,
    printable,
    raise_if_out_of_memory,
)
from selftaught.parallel import any_process, broadcast, broadcast_tensors, rank, shard
from selftaught.retrieval import approximate_nearest, recall_against_exact
from selftaught.run_folder import CHECKPOINT, PARTIAL
from selftaught.training.assemble import Parts
from selftaught.training.checkpoint import (
    Checkpoint,
    DamagedCheckpoint,
    TrainState,
    load_checkpoint,
    restore_optimizer,
    save_checkpoint,
    set_random_states,
)
from selftaught.training.compile import compiled
from selftaught.training.gradient_parts import PlainBackward, RecordedBackward, backward_in_parts, part_size
from selftaught.training.label_free import symptom
from selftaught.training.legs import rate_factor
from selftaught.training.logbook import epoch_line
from selftaught.training.model import find_exponent, has_floor, save_floor
from selftaught.training.readback import Readback
from selftaught.training.snapshots import write_snapshot

EPOCH_INTERVAL = 60.0
"""The end of an epoch is saved if the last save is this many seconds ago; saving a short epoch can take longer than
training it."""
RECALL_SAMPLE = 1000
"""Queries on which an approximate search is compared with the exact one."""
SAVE_INTERVAL = 300.0
"""Seconds after which an epoch under way is saved, so that a kill costs no more time than this."""


class Loop:
    """Trains a learner on a folder of images, starting from a given state."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.learner, self.settings = parts, parts.learner, parts.settings
        assert parts.settings.epochs is not None
        self.epochs = parts.settings.epochs
        self.rates = [group["lr"] for group in parts.optimizer.param_groups]
        self.saved_at = self.kept_at = time.monotonic()
        kind = RecordedBackward if self.settings.compile and parts.fabric.device.type == "cuda" else PlainBackward
        self.backward = kind(self.learner.network, parts.fabric.autocast)

    def begin(self) -> TrainState:
        """The state before the first step."""
        evaluation, images = self.parts.evaluation, self.parts.images
        heads = evaluation.training_set(images)
        labeled = evaluation.labeled_set()  # before the rest, which needs all images to be readable
        start = evaluation.signals(images, heads)
        if has_floor(self.parts):
            save_floor(self.parts)
        evaluation.exponent = find_exponent(self.parts)
        if any(choice.name == "search" and choice.value == "approximate" for choice in self.parts.record.choices):
            self._tell_recall(self.learner.place(heads[self.learner.batch_head]))
        state = TrainState(
            files=images.files,
            labeled=evaluation.labeled.files if evaluation.labeled else (),
            plan=self._plan(heads, epoch=0),
            sums=torch.zeros(len(self.learner.loss_names)),
            start=start | evaluation.scores(heads, labeled),
        )
        self._keep_snapshot(0)
        self._keep(state)
        return state

    def restore(self, checkpoint: Checkpoint) -> TrainState:
        """Continue from a checkpoint; returns its state."""
        content = checkpoint.parts
        try:
            self.learner.load_state_dict(content["learner"])
        except (RuntimeError, TypeError, AttributeError) as error:
            raise_if_out_of_memory(error)
            raise UsageError(
                f"the backbone is not the one that the checkpoint {printable(checkpoint.file)} was made with"
            ) from None
        try:
            restore_optimizer(self.parts.optimizer, content["optimizer"])
            if len(checkpoint.state.sums) != len(self.learner.loss_names):
                raise ValueError("sums of other losses")
            set_random_states(content["random"])  # last: building the parts draws random numbers
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise_if_out_of_memory(error)
            raise DamagedCheckpoint(
                f"the checkpoint {printable(checkpoint.file)} does not fit this run: the run must be started again"
            ) from None
        return checkpoint.state

    def begin_leg(self, state: TrainState) -> None:
        """Plan the first epoch of another leg: the finished run has planned no further epoch."""
        torch.manual_seed(view_seed(self.settings.seed, state.epoch))  # so that planning it twice gives the same plan
        state.plan = self._plan(self.parts.evaluation.training_set(self.parts.images), state.epoch)

    def go(self, state: TrainState) -> None:
        """Train until the last epoch is done."""
        steps, epochs = len(state.plan), self.epochs
        done = state.epoch * steps + state.step
        try:
            work = self.parts.context.reporter.work("training", epochs * steps, done)
            with compiled(self.parts, wanted=state.epoch < epochs), work as tell:
                while state.epoch < epochs:
                    began, images = time.monotonic(), state.plan[state.step :].numel()
                    self._set_rates(state.epoch)
                    for word in self._steps(state):
                        tell(1, word)
                    stepped = time.monotonic() - began
                    self._finish_epoch(state)
                    self.parts.logbook.timing(state.epoch, images, stepped, time.monotonic() - began)
        except Interrupted:
            self._check_finite(state)
            self._save_partial(state)
            raise self._stopped(state, "and saved") from None
        except Collapse:
            raise
        except SelftaughtError as error:
            with suppress(SelftaughtError):  # the disk may be what is wrong
                self._save_partial(state)
            raise SelftaughtError(f"{error}; when that is fixed, go on with: {self.parts.context.command}") from None
        except KeyboardInterrupt:
            raise self._stopped(state, "at once; what was saved before is kept") from None

    def _steps(self, state: TrainState) -> Iterator[str]:
        """Take the remaining steps of an epoch; yields after each a text for the progress line."""
        device, recent, own = self.parts.fabric.device, Readback(), shard(state.plan.shape[1])
        plan, sums = state.plan.to(device), state.sums.to(device)
        first, began = state.step, time.monotonic()
        batches = self.parts.reader.read(self._requests(state.plan, state.epoch, first))
        for step, batch in enumerate(batches, first):
            if batch.failures:
                position, reason = batch.failures[0]
                path = self.parts.images.path(int(state.plan[step, own[position]]))
                raise ImageError(f"{printable(path)} could be read before and cannot be now ({reason})")
            losses = self._step(batch.images.to(device, non_blocking=True), plan[step])
            sums += losses
            state.sums, state.step = sums, step + 1
            recent.offer(losses)
            lost = recent.values is not None and not all(map(math.isfinite, recent.values))
            if any_process(self.parts.context.interrupts.asked or lost):  # the first to know tells the others
                self._check_finite(state)
                raise Interrupted("interrupted")
            if time.monotonic() - self.saved_at > SAVE_INTERVAL:
                self._save_partial(state)
            pace = (step + 1 - first) / (time.monotonic() - began)
            yield self._word(state, recent, pace)

    def _step(self, images: Tensor, indices: Tensor) -> Tensor:
        parts, learner = self.parts, self.learner
        views = images.shape[1]
        rows = images.transpose(0, 1).flatten(0, 1)  # all first views, then all second ones
        ids, size = indices.repeat(views), part_size(self.settings)
        if size is not None:
            losses = backward_in_parts(learner, rows, ids, size, parts.fabric.autocast, self.backward)
        else:
            losses = parts.module(rows, ids)
            parts.fabric.backward(losses[learner.loss_names[0]])
        learner.after_backward()
        parts.optimizer.step()
        parts.optimizer.zero_grad()
        learner.after_step()
        return torch.stack([losses[name].detach() for name in learner.loss_names])

    def _finish_epoch(self, state: TrainState) -> None:
        self._check_finite(state)
        evaluation, images, settings = self.parts.evaluation, self.parts.images, self.settings
        means = (state.sums.cpu() / len(state.plan)).tolist()
        row: dict[str, float] = {"epoch": state.epoch + 1, "lr": self.parts.optimizer.param_groups[0]["lr"]}
        row |= dict(zip(self.learner.loss_names, means, strict=True))
        heads = evaluation.training_set(images)
        row |= evaluation.signals(images, heads)
        problem = broadcast(symptom(state.start, row, len(images), self.learner.groups_images))
        if problem:
            raise self._collapse(state, problem)
        epoch, last = state.epoch + 1, self.epochs
        if epoch % settings.eval_every == 0 or epoch == last:
            row |= evaluation.scores(heads, evaluation.labeled_set())
        self._keep_snapshot(epoch)
        plan = self._plan(heads, epoch) if epoch < last else state.plan
        # Nothing may come between these lines: before them, an interrupt finds the state as after the last step.
        state.history.append(row)
        state.epoch, state.step, state.plan = epoch, 0, plan
        state.sums = torch.zeros_like(state.sums)
        if epoch == last or time.monotonic() - self.kept_at > EPOCH_INTERVAL:
            self._keep(state)
        self.parts.logbook.write(state)
        self.parts.logbook.board(row)
        self.parts.context.reporter.say(epoch_line(row, last))

    def _plan(self, heads: dict[str, Tensor], epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(view_seed(self.settings.seed, epoch))
        learner, images = self.learner, self.parts.images
        rows = learner.place(heads[learner.batch_head])
        for view in learner.more_views:
            rows = rows + learner.place(self.parts.evaluation.training_set(images, view)[learner.batch_head])
        plan = broadcast(learner.batches(rows, generator))
        broadcast_tensors(self.learner.buffers())  # such as clusters, which two GPUs may compute differently
        return plan

    def _tell_recall(self, rows: Tensor) -> None:
        some = torch.linspace(0, len(rows) - 1, min(RECALL_SAMPLE, len(rows)), device=rows.device).long()
        _, found = approximate_nearest(rows[some], rows, self.settings.per_query - 1, exclude=some)
        recall = recall_against_exact(rows[some], rows, found, exclude=some)
        say = self.parts.context.reporter.say
        say(f"the approximate search finds {recall:.1%} of the neighbors that an exact one would")

    def _requests(self, plan: Tensor, epoch: int, first: int) -> Iterator[list[ViewRequest]]:
        path, seed = self.parts.images.path, self.settings.seed
        for step in range(first, len(plan)):
            batch = plan[step].tolist()
            seeds = view_seeds(len(batch), seed, epoch, step)
            yield [ViewRequest(path(batch[position]), "random", seeds[position]) for position in shard(len(batch))]

    def _set_rates(self, epoch: int) -> None:
        factor = rate_factor(self.settings, self.parts.record.leg, epoch)
        for group, rate in zip(self.parts.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def _keep_snapshot(self, epoch: int) -> None:
        every = self.settings.snapshots
        if rank() == 0 and every and (epoch % every == 0 or epoch == self.epochs):
            write_snapshot(self.parts.folder, epoch, self.learner)

    def _keep(self, state: TrainState) -> None:
        """Save the end of an epoch, which is kept if training collapses later."""
        self._save(CHECKPOINT, state)
        self._forget_partial()
        self.kept_at = self.saved_at

    def _save(self, name: str, state: TrainState) -> None:
        self.saved_at = time.monotonic()
        if rank() == 0:
            parts = {"learner": self.learner.state_dict(), "optimizer": self.parts.optimizer.state_dict()}
            save_checkpoint(self.parts.folder / name, parts, state)

    def _save_partial(self, state: TrainState) -> None:
        """Save a state in mid-epoch, unless its losses are not finite."""
        if bool(torch.isfinite(state.sums).all()):
            self._save(PARTIAL, state)

    def _forget_partial(self) -> None:
        if rank() == 0:
            (self.parts.folder / PARTIAL).unlink(missing_ok=True)

    def _word(self, state: TrainState, recent: Readback, pace: float) -> str:
        """The text of the progress line; ``pace``: steps in a second."""
        epochs, images = self.epochs, pace * state.plan.shape[1]
        left = (epochs - state.epoch) * len(state.plan) - state.step
        seconds = left / pace + self.parts.logbook.seconds_beside_steps * (epochs - state.epoch)
        names = self.learner.loss_names[1:] or self.learner.loss_names  # the parts of the loss, if it has any
        pairs = zip(names, (recent.values or ())[-len(names) :], strict=False)
        losses = " ".join(f"{name} {value:.4f}" for name, value in pairs)
        return (
            f"epoch {state.epoch + 1}/{epochs}, {duration(seconds)} left, "
            f"{images:.0f} images/s, {losses}"  # a narrow terminal cuts off the end
        )

    def _stopped(self, state: TrainState, how: str) -> Interrupted:
        where = f"epoch {state.epoch + 1} of {self.epochs}"
        return Interrupted(f"stopped in {where} {how}; go on with: {self.parts.context.command}")

    def _check_finite(self, state: TrainState) -> None:
        """Raise Collapse if a loss is not finite; all processes must call it together, since they end together."""
        if not broadcast(bool(torch.isfinite(state.sums).all())):
            raise self._collapse(state, "the loss is no longer a number")

    def _collapse(self, state: TrainState, problem: str) -> Collapse:
        self._forget_partial()
        kept = load_checkpoint(self.parts.folder)
        rates = f"--lr (now {self.settings.lr:g})"
        if self.settings.head_lr != self.settings.lr:
            rates += f" or head_lr (now {self.settings.head_lr:g})"
        return Collapse(
            f"training collapsed in epoch {state.epoch + 1}: {problem}; the state after epoch "
            f"{kept.state.epoch if kept else 0} is kept in {printable(self.parts.folder)}; try a lower {rates}, "
            "a larger --batch-size, or pretrained weights"
        )
