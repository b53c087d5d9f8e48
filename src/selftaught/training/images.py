"""The images of a run: listed once, without those that cannot be read."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from selftaught.data import ImageFolder, Skipped, join_folders, open_images
from selftaught.errors import SelftaughtError, printable
from selftaught.learners import find_method
from selftaught.run_folder import RunRecord
from selftaught.training.checkpoint import TrainState


@dataclass(frozen=True)
class RunImages:
    """The images that a run, or a stage of it, works with."""

    training: ImageFolder
    labeled: ImageFolder | None
    """The training images that have labels, in a semi-supervised run."""
    evaluation: ImageFolder | None
    """Images to measure on."""

    def only_of(self, state: TrainState, run: Path) -> "RunImages":
        """The images that a run's checkpoint names."""
        gone = sorted(set(state.files) - set(self.training.files))
        if gone:
            raise SelftaughtError(
                f"{len(gone)} of the run's {len(state.files)} images missing in {printable(self.training.root)}, "
                f"such as {printable(gone[0])}: bring them back to resume, or learn from those that are left in a new "
                f"run: {advise_start(run)}"
            )
        measured = self.evaluation and self.evaluation.only(state.labeled)
        return replace(self, training=self.training.only(state.files), evaluation=measured)

    def without(self, images: ImageFolder, skipped: Sequence[Skipped]) -> "RunImages":
        """The same images, except that one collection lacks the skipped ones."""
        changed = images.without(skipped)
        return replace(self, **{"training" if images is self.training else "evaluation": changed})


def advise_start(run: Path) -> str:
    """The command that starts a new run from the network of this one."""
    return f"selftaught train PHOTOS --out NEW --from {shlex.quote(printable(run))}"


def list_images(record: RunRecord) -> RunImages:
    """The images of a run, as found on the disk."""
    evaluation, allow = None, record.allow_skipped
    if record.eval is not None:
        evaluation = open_images(
            record.eval, "test", level=record.eval_level, labels=record.eval_labels, allow_skipped=allow
        )
        evaluation.without_broken_strays().check_classes()
    if record.images is not None:
        return RunImages(open_images(record.images, "train", allow_skipped=allow), None, evaluation)
    assert record.labeled is not None
    assert record.unlabeled is not None
    labeled = open_images(record.labeled, "train", allow_skipped=allow)
    unlabeled = open_images(record.unlabeled, "all", allow_skipped=allow)
    return RunImages(join_folders(labeled, unlabeled), labeled, evaluation)


def class_numbers(images: ImageFolder, method: str) -> Tensor | None:
    """Each image's class as a number, -1 for those without a label; None for a method without labels."""
    if not find_method(method).labeled:
        return None
    labels = images.labels() if images.given is None or method != "slade" else images.given
    sizes = Counter(label for label, file in zip(labels, images.files, strict=True) if label and file[-1] != "/")
    alone = sorted(label for label, size in sizes.items() if size == 1)
    if alone:
        raise SelftaughtError(
            f"{len(alone)} of {len(sizes)} classes in {printable(images.root)} with one image only, such as "
            f"{printable(alone[0])}: learning from labels takes two or more of each; add some, or remove the class"
        )
    numbers = {label: number for number, label in enumerate(sorted(sizes))}
    return torch.tensor([numbers.get(label, -1) for label in labels])
