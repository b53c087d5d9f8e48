"""Using a finished model: evaluate and search."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.table import Table
from torch import Tensor

from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import ImageFolder, Level, Skipped, check_skipped, open_images
from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import write_atomically
from selftaught.model_files import DESCRIPTION
from selftaught.networks import WHITENED_ON, weights_on_disk
from selftaught.retrieval import Scores, score
from selftaught.vectors import SUFFIXES, Vectors, check_folder_of, read_vectors_of


def load_model(use: ModelUse) -> Embedder:
    """The model that a command is asked to use, with its options."""
    embedder = Embedder.load(use.run, use.device, size=use.size, mirror=use.mirror or None, scales=use.scales)
    if "epoch" in embedder.description:
        epoch, epochs = embedder.description["epoch"], embedder.description["epochs"]
        Reporter().say(f"{printable(use.run)} is not finished: this is its model after epoch {epoch} of {epochs}")
    return embedder


def whiten(embedder: Embedder, images: ImageFolder, reporter: Reporter) -> Embedder:
    """The model half-whitened on these images, with progress."""
    with reporter.work("whitening", min(len(images), WHITENED_ON)) as tell:
        return embedder.whiten(images.paths(), advance=tell)


def load_whitened(use: ModelUse, images: ImageFolder, kept: Path) -> Embedder:
    """The model that a command is asked to use, whitened on these images if that is asked for.

    ``kept``: the folder that keeps the whitened model, if there is one: later images and queries need the same model.
    """
    embedder = load_model(use)
    if not use.whiten:
        return embedder
    if not (kept / DESCRIPTION).is_file():
        return whiten(embedder, images, Reporter())
    known = Embedder.load(kept, use.device)
    if known.description.get("whitened") != embedder.identity:
        raise UsageError(f"{printable(kept)} was whitened from another model: give another --out")
    return known


def evaluate(
    use: ModelUse,
    labeled: str,
    target: Path | None,
    *,
    floor: bool = True,
    level: str | None = None,
    labels: str | None = None,
    allow_skipped: bool = False,
) -> None:
    to_file = target is not None and str(target) != "-"
    if target is not None and to_file:
        check_folder_of(target)
    images = open_images(labeled, "test", level=cast(Level | None, level), labels=labels)
    images.check_classes()
    reporter = Reporter()
    embedder = load_model(use)
    if "--level" in (classes := images.describe_labels()):  # another level would give other classes
        reporter.say(classes)
    if use.whiten:
        embedder = whiten(embedder, images, reporter)
    images, vectors, skipped = embed_folder(embedder, images, allow_skipped)
    numbers = images.classes()
    rows: dict[str, Scores] = {}
    try:
        rows["model"] = score(vectors.to(embedder.device), numbers)
    except ValueError as error:
        raise SelftaughtError(f"{printable(labeled)} cannot be scored: {error}") from None
    plain = _floor(embedder) if floor else None
    if plain is not None:
        reporter.say(f"beside it, the plain backbone: {plain!r}")
        _, vectors, _ = embed_folder(plain, images, allow_skipped)
        rows["plain backbone"] = score(vectors.to(plain.device), numbers)
    scores = rows["model"]
    row: dict[str, object] = {**scores.row()}
    row |= {"images": len(images), "classes": max(numbers) + 1, "queries": scores.queries}
    row |= {"excluded": scores.excluded, "skipped": [vars(entry) for entry in skipped]}
    if "plain backbone" in rows:
        row["plain_backbone"] = rows["plain backbone"].row()
    text = json.dumps(row, indent=2) + "\n"
    if target is not None and not to_file:
        sys.stdout.write(text)
        return
    named = {name if len(rows) > 1 else "": each.row() for name, each in rows.items()}
    Console(soft_wrap=True).print(scores_table(named))
    note = f"{scores.queries} queries among {len(images)} images of {row['classes']} classes"
    if scores.excluded:
        note += f"; {scores.excluded} images excluded from the score, because their class has no other image"
    print(note)
    if target is not None:
        write_atomically(target, text)


def _floor(embedder: Embedder) -> Embedder | None:
    """The pretrained backbone of a model, with the same views; None if it is that model or is not on this disk."""
    about = embedder.description
    if about["own_backbone"] or about["head"] == "none" or not weights_on_disk(about["backbone"]):
        return None
    plain = Embedder.plain(about["backbone"], embedder.device)
    if plain.description["backbone"] != about["backbone"]:
        return None
    size = None if embedder.preprocessing.fixed_size else embedder.preprocessing.use_size
    return plain.seeing(size, embedder.mirror, embedder.scales)


def open_collection(use: ModelUse, within: str, allow_skipped: bool) -> tuple[Embedder, Vectors]:
    """A model and its vectors of a collection: read from a file, or made now from images."""
    embedder = load_model(use)
    if not within:
        raise UsageError("--in is empty: give a folder of images, or a file written by selftaught embed")
    if Path(within).suffix in SUFFIXES and not Path(within).is_dir():
        if use.whiten:
            raise UsageError(
                f"{printable(within)} is made already: give the whitened model it was made with, no --whiten"
            )
        return embedder, read_vectors_of(Path(within), embedder)
    images = open_images(within, "all")
    if use.whiten:
        embedder = whiten(embedder, images, Reporter())
    images, vectors, _ = embed_folder(embedder, images, allow_skipped)
    return embedder, Vectors(images.root, images.files, vectors, embedder.identity, embedder.metric)


def embed_folder(
    embedder: Embedder, images: ImageFolder, allow_skipped: bool
) -> tuple[ImageFolder, Tensor, list[Skipped]]:
    """Embed all images that can be read; prints which cannot."""
    reporter = Reporter()
    with reporter.work("embedding images", len(images)) as tell:
        vectors, failures = embedder.encoding.encode_files(images.paths(), tell)
    skipped = [Skipped(images.files[i], reason) for i, reason in failures]
    report_skipped(images, skipped, allow_skipped, reporter)
    return images.without(skipped), vectors, skipped


def report_skipped(images: ImageFolder, skipped: Sequence[Skipped], allow: bool, reporter: Reporter) -> None:
    """Print which images were left out; raises an error if they are too many."""
    if not skipped:
        return
    check_skipped(images, skipped, allow=allow)
    for entry in skipped[:10]:
        reporter.say(f"left out {printable(entry.path)}: {entry.reason}")
    if len(skipped) > 10:
        reporter.say(f"left out {len(skipped) - 10} more images that cannot be read")


def scores_table(rows: dict[str, dict[str, float]]) -> Table:
    """Scores in percent, one line per model."""
    table = Table(box=None, pad_edge=False)
    columns: Sequence[str] = list(next(iter(rows.values())))
    if any(rows):
        table.add_column("")
    for column in columns:
        table.add_column(title(column), justify="right")
    for name, row in rows.items():
        values = [f"{row[column]:.1%}" for column in columns]
        table.add_row(*([name] if any(rows) else []), *values)
    return table


def title(column: str) -> str:
    """A score's name as in the literature."""
    return {"map@r": "MAP@R", "r_precision": "R-Precision"}.get(column, column.replace("recall", "Recall"))
