"""Facts, scores and verdict of a training, from its run folder."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selftaught.console import duration
from selftaught.data import ImageFolder, Skipped
from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, printable
from selftaught.files import read_json_lines
from selftaught.report import chance
from selftaught.run_folder import METRICS, START, TIMING, TRAINED, RunRecord, read_models, read_record, read_skipped
from selftaught.training import SLACK, RunImages, give_verdict, list_images

Numbers = Mapping[str, float]
TITLES = {"found_again": "Found again", "recall@1": "Recall@1", "map@r": "MAP@R", "r_precision": "R-Precision"}
"""The numbers of a model that are shown."""
LARGEST = 1e100
"""A number beyond this is no measurement."""


@dataclass(frozen=True)
class Course:
    """A run as read from its files, and its images if they are still there."""

    run: Path
    record: RunRecord
    start: Numbers
    history: Sequence[Numbers]
    seconds: float
    skipped: int
    models: Mapping[str, Any] | None
    training: ImageFolder | None
    labeled: ImageFolder | None
    """The labeled images on which the run was measured."""

    @property
    def serves_floor(self) -> bool:
        return (self.run / TRAINED).is_dir()

    @property
    def last(self) -> Numbers:
        """The last measurements."""
        return self.history[-1] if self.history else self.start

    @property
    def queries(self) -> int:
        return len(self.labeled) if self.labeled is not None else 0


def read_course(run: Path, listed: RunImages | None) -> Course:
    """Read a run; files that are missing or damaged count as empty. ``listed``: its images, if they are known."""
    record = read_record(run)
    start = _rows(run / START)
    gone = [Skipped(path, "") for path in read_skipped(run)]
    training = labeled = None
    skipped = len(gone)
    with suppress(SelftaughtError):  # then some images are gone, and none are shown
        images = listed or list_images(record)
        training, labeled = images.training.without(gone), images.evaluation and images.evaluation.without(gone)
        skipped = len(images.training) - len(training)
    return Course(
        run,
        record,
        start[0] if start else {},
        [row for row in _rows(run / METRICS) if "epoch" in row],
        sum(row.get("seconds", 0.0) for row in _rows(run / TIMING)),
        skipped,
        read_models(run),
        training,
        labeled,
    )


def describe_course(course: Course, embedder: Embedder) -> list[tuple[str, str]]:
    """The facts about a training, as pairs of a name and a text."""
    record, settings = course.record, course.record.settings or course.record.requested
    where = " and ".join(map(printable, record.sources))
    count = f"{len(course.training):,} in {where}" if course.training is not None else where
    left_out = f"; {course.skipped:,} more could not be read (skipped.csv)" if course.skipped else ""
    weights = "pretrained" if record.pretrained else "without pretrained weights"
    learned = "only the last layer learned" if settings.train == "heads" else "all of it learned"
    sides = " and ".join(map(str, embedder.encoding.sides))
    facts = {
        "Photos": count + left_out,
        "Backbone": f"{record.backbone}, {weights}, {learned}",
        "Recipe": settings.recipe + ("" if settings.method == "stml" else f", method {settings.method}"),
        "Epochs": f"{len(course.history)} of {settings.epochs}",
        "Time": f"{duration(course.seconds)} for the epochs" if course.seconds else "",
        "Measured on": printable(record.eval) if record.eval else "no labels",
        "Model": f"{embedder.dim} numbers for each photo, compared by {embedder.comparison}; "
        f"photos are seen at {sides} pixels",
    }
    return [(name, text) for name, text in facts.items() if text]


def judge(course: Course) -> str:
    """In words, whether training was worth it, as far as that is known."""
    models = course.models
    if models is not None and "trained" in models["models"]:
        floors = {name: row for name, row in models["models"].items() if name != "trained"}
        trained = models["models"]["trained"]
        told = give_verdict(floors, models["floor"], trained, course.serves_floor, course.queries, models["alike"])
        return told[0].upper() + told[1:] + "."
    if "recall@1" in course.last and "recall@1" in course.start:
        before, after = course.start["recall@1"], course.last["recall@1"]
        photos = f"Of {course.queries:,} labeled photos" if course.queries else "Of the labeled photos"
        return (
            f"{photos} {after:.1%} have a photo of the same class nearest to them; before training, {before:.1%} had."
        )
    return (
        "There were no labels to measure with and no pretrained weights to compare with, so no number says whether "
        "training has helped: look at the neighbors below."
    )


def scores_of(course: Course) -> list[list[str]]:
    """A table of the model and the untrained models, its header first; empty if nothing was measured."""
    if course.models is not None:
        rows: dict[str, Numbers] = dict(course.models["models"])
        served = course.models["floor"] if course.serves_floor else "trained"
    else:
        rows, served = {"before training": course.start, "trained": course.last}, "trained"
    names = [name for name in TITLES if all(name in row for row in rows.values())]
    if not names:
        return []
    table = [["Model", *(TITLES[name] for name in names)]]
    for name, row in rows.items():
        here = f"{name} (this run's model)" if name == served and len(rows) > 1 else name
        table.append([here, *(_cell(course, key, row[key]) for key in names)])
    return table


def explain_scores(course: Course) -> str:
    """What the numbers of the table mean, and how much of them is noise."""
    told = ""
    if course.models is not None:
        told += (
            "Without training, the backbone's features as they are, and half-whitened, are what training must beat. "
            "Found again: the center of a photo is looked for among all photos seen whole, which needs no labels; "
            f"differences up to {100 * SLACK:.2f} points are noise. It notices much harm, not all, and hardly any gain."
        )
    if course.labeled is not None:
        trained_on = set(course.training.paths() if course.training is not None else [])
        both = sum(path in trained_on for path in course.labeled.paths())
        seen = f", {both:,} of which were also trained on" if both else ""
        told += (
            f"\n\nScores are measured on {course.queries:,} labeled photos{seen}. ± is twice their standard error: a "
            "difference within it may be chance."
        )
    return told.strip()


def _cell(course: Course, name: str, value: float) -> str:
    if name == "found_again":
        return f"{value:.2%}"
    noise = f" ± {200 * chance(value, course.queries):.1f}" if course.queries else ""
    return f"{100 * value:.1f}{noise}%"


def _rows(file: Path) -> list[dict[str, float]]:
    """The numbers in each line of a file, without those that cannot be drawn or summed."""
    rows = read_json_lines(file)
    numbers = ([(name, value) for name, value in row.items() if isinstance(value, int | float)] for row in rows)
    return [{name: float(value) for name, value in row if abs(value) < LARGEST} for row in numbers]
