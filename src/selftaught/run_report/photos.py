"""The photos of the page, and their vectors by the models with and without training."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from selftaught.console import Reporter
from selftaught.data import ImageFolder, open_images, pick_evenly
from selftaught.embedder import Embedder
from selftaught.errors import UsageError, printable
from selftaught.model_files import DESCRIPTION
from selftaught.networks import weights_on_disk
from selftaught.run_folder import FLOOR, TRAINED
from selftaught.run_report.course import Course

MOST_ON_GPU, MOST_ON_CPU = 1000, 300
"""The most photos that are embedded, so that the page is made quickly."""
STRETCHES = 10
"""Of more photos, this many stretches of neighboring names are taken: photos of one thing often lie together."""
BEFORE, AFTER = "without training", "after training"


@dataclass(frozen=True)
class Sample:
    """Photos and their vectors, n×d, by the name of the model; ``served``: the name of the run's own model.

    ``total``: the number of photos of which these are some or all, without those that turned out unreadable.
    """

    images: ImageFolder
    total: int
    labels: tuple[str, ...] | None
    vectors: Mapping[str, Tensor]
    served: str
    embedder: Embedder

    def __len__(self) -> int:
        return len(self.images)


def embed_sample(
    course: Course, images: str | None, device: str, before: Embedder | None, reporter: Reporter
) -> Sample:
    """Embed some photos with the models of a run, with progress.

    Args:
        images: where photos come from; by default the labeled ones if there are any, or else those trained on.
        before: the model before training, if the run's folder has none.
    """
    found, labeled = _choose(course, images)
    models = _load(course, device, before)
    served = BEFORE if course.serves_floor else AFTER
    embedder = models[served]
    picked = pick(len(found), MOST_ON_GPU if embedder.device.type == "cuda" else MOST_ON_CPU)
    chosen = found.only([found.files[i] for i in picked])
    vectors: dict[str, Tensor] = {}
    total = len(found)
    with reporter.work("looking at photos for the page", len(chosen) * len(models)) as tell:
        for name, model in models.items():
            vectors[name], failures = model.encoding.encode_files(chosen.paths(), tell)
            if failures:
                gone = {i for i, _ in failures}
                kept = [i for i in range(len(chosen)) if i not in gone]
                vectors = {name: rows[kept] if len(rows) == len(chosen) else rows for name, rows in vectors.items()}
                total -= len(gone)
                chosen = chosen.only([chosen.files[i] for i in kept])
    if len(chosen) < 2:
        raise UsageError(f"the page needs two photos or more, and there are {len(chosen)} in {printable(found.root)}")
    return Sample(chosen, total, chosen.labels() if labeled else None, vectors, served, embedder)


def pick(count: int, most: int) -> list[int]:
    """Up to ``most`` of ``count`` positions: all, or evenly spread stretches of neighbors.

    Example:
        >>> pick(5, 10), len(pick(1000, 100)), pick(1000, 100)[9:11]
        ([0, 1, 2, 3, 4], 100, [9, 110])
    """
    if count <= most:
        return list(range(count))
    length = most // STRETCHES
    return [start + step for start in pick_evenly(count - length + 1, STRETCHES) for step in range(length)]


def _choose(course: Course, images: str | None) -> tuple[ImageFolder, bool]:
    """The photos to show, and whether to use their labels."""
    if images is not None:
        return open_images(images, "all", allow_skipped=True), False
    if course.labeled is not None:
        return course.labeled, True
    if course.training is None:
        where = " and ".join(map(printable, course.record.sources))
        raise UsageError(f"the photos of the run are gone from {where}: selftaught report RUN IMAGES takes others")
    return course.training, False


def _load(course: Course, device: str, before: Embedder | None) -> dict[str, Embedder]:
    run, record = course.run, course.record
    after = Embedder.load(run / TRAINED if course.serves_floor else run, device)
    if before is None and (run / FLOOR / DESCRIPTION).is_file():
        before = Embedder.load(run / FLOOR, device)
    elif before is None and record.pretrained and record.backbone and weights_on_disk(record.backbone):
        before = Embedder.untrained(record.backbone, device)
    return {AFTER: after} if before is None else {BEFORE: before, AFTER: after}
