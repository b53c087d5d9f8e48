"""All figures of a run, from the networks it has kept and labeled images."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import torch

from selftaught.console import Reporter
from selftaught.data import FileReader, ImageFolder, Skipped, ViewRequest, check_skipped, in_batches, pick_evenly
from selftaught.devices import available_cores
from selftaught.encoding import FEW_IMAGES, views_in_training
from selftaught.errors import SelftaughtError, UsageError, counted, printable
from selftaught.reproduce.figures.cases import draw_cases
from selftaught.reproduce.figures.drawing import Drawing, check_files
from selftaught.reproduce.figures.labeled_images import LabeledImages
from selftaught.reproduce.figures.observe import EpochResult, Observer, cost
from selftaught.reproduce.figures.retrievals import draw_most_similar, draw_retrievals
from selftaught.reproduce.figures.similarities import draw_auroc, draw_scatter
from selftaught.reproduce.figures.tsne import draw_tsne
from selftaught.training import Snapshot, kept, load_snapshot

CHECKED_AT_ONCE = 32
MILESTONES = 4
"""Epochs whose retrievals are shown: the first kept, the last, and some evenly between."""
HOW = "selftaught train … --snapshots 10 keeps them"


@dataclass(frozen=True)
class Figure:
    """A figure by the name of its files, and what it needs."""

    name: str
    draw: Callable[[LabeledImages, Sequence[EpochResult]], Drawing]
    teacher: bool = False
    course: bool = False
    """Needs networks of at least two epochs."""
    module: str | None = None


FIGURES = (
    Figure("auroc", draw_auroc, teacher=True, course=True),
    Figure("similarities", draw_scatter, teacher=True),
    Figure("cases", draw_cases, teacher=True),
    Figure("most-similar", draw_most_similar, teacher=True),
    Figure("tsne", draw_tsne, course=True, module="sklearn"),
    Figure("retrievals", draw_retrievals, course=True),
)


def draw_figures(
    run: Path,
    images: ImageFolder,
    out: Path,
    device: torch.device,
    *,
    seed: int = 0,
    allow_skipped: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[Path], list[str]]:
    """Draw how a run's networks see labeled images: every figure that they allow, as a PNG with its numbers as CSV.

    Files of the same names are replaced if they are figures, too. ``seed`` decides on the batches and the random views.

    Returns:
        The files written, and a sentence for each figure that is left out.
    """
    reporter = reporter or Reporter(quiet=True)
    epochs = kept(run)
    if not epochs:
        raise SelftaughtError(f"{printable(run)} has kept no networks to draw figures from: {HOW}")
    LabeledImages(images).check()
    last = load_snapshot(run, epochs[-1], device)
    wanted, left_out = _possible(epochs, last)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{printable(out)} cannot be the folder of figures ({error.strerror}): give another --out"
        ) from None
    for figure in wanted:
        check_files(out, figure.name)
    shown_epochs = [epochs[i] for i in pick_evenly(len(epochs), MILESTONES)]
    teacher = last.teacher is not None
    workers = 0 if len(images) < FEW_IMAGES else min(available_cores(), 16)
    with closing(FileReader(views_in_training(last.preprocessing, last.settings), workers)) as reader:
        labeled = _readable(images, reader, allow_skipped, reporter)
        steps = {e: cost(len(labeled), last.settings, vectors=e in shown_epochs, teacher=teacher) for e in epochs}
        with reporter.work("embedding images with the networks of each epoch", sum(steps.values())) as tell:
            observer = Observer(labeled, reader, device, seed, tell)
            seen = [
                observer.observe(load_snapshot(run, epoch, device), epoch, vectors=epoch in shown_epochs)
                for epoch in epochs
                if steps[epoch]
            ]
    written = []
    with reporter.work("drawing figures", len(wanted)) as tell:
        for figure in wanted:
            written += figure.draw(labeled, seen).write(out, figure.name)
            tell(1)
    return written, left_out


def _possible(epochs: Sequence[int], last: Snapshot) -> tuple[list[Figure], list[str]]:
    wanted, left_out = [], []
    for figure in FIGURES:
        if figure.teacher and last.teacher is None:
            reason = "the run's method has no teacher; draw it from a run of --method stml with --snapshots 10"
        elif figure.course and len(epochs) < 2:
            reason = f"it needs networks of two epochs, and the run has kept only those of epoch {epochs[0]}; {HOW}"
        elif figure.module and find_spec(figure.module) is None:
            reason = "it needs scikit-learn: pip install 'selftaught[research]'"
        else:
            wanted.append(figure)
            continue
        left_out.append(f"{figure.name} is left out: {reason}")
    return wanted, left_out


def _readable(images: ImageFolder, reader: FileReader, allow_skipped: bool, reporter: Reporter) -> LabeledImages:
    skipped, files = list[Skipped](), iter(images.files)
    requests = (ViewRequest(path, "center") for path in images.paths())
    with reporter.work("checking images", len(images)) as tell:
        for batch in reader.read(in_batches(requests, CHECKED_AT_ONCE)):
            names = list(islice(files, len(batch.positions) + len(batch.failures)))
            skipped += [Skipped(names[position], reason) for position, reason in batch.failures]
            tell(len(names))
    if skipped:
        check_skipped(images, skipped, allow=allow_skipped)
        reporter.say(
            f"left out {counted(len(skipped), 'image')} that cannot be read, such as {printable(skipped[0].path)}"
        )
    labeled = LabeledImages(images.without(skipped))
    labeled.check()
    return labeled
