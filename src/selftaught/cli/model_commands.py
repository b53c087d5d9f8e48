"""Using a finished model: evaluate, embed, search."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import Tensor

from selftaught.data import ImageFolder, Skipped, check_skipped, open_images, skipped_table
from selftaught.embedder import BATCH_SIZE, Embedder
from selftaught.errors import Interrupted, SelftaughtError, printable
from selftaught.files import write_atomically
from selftaught.retrieval import score
from selftaught.training.interrupts import Interrupts
from selftaught.training.progress import Reporter
from selftaught.unfinished import Unfinished, images_digest
from selftaught.vectors import (
    Vectors,
    check_folder_of,
    check_target,
    model_id,
    write_vectors,
)


def evaluate(run: Path, labeled: str, target: Path | None, device: str, allow_skipped: bool) -> None:
    to_file = target is not None and str(target) != "-"
    if target is not None and to_file:
        check_folder_of(target)
    images = open_images(labeled, "test")
    images.check_classes()
    embedder = Embedder.load(run, device)
    images, vectors, skipped = embed_folder(embedder, images, allow_skipped)
    labels = images.classes()
    try:
        scores = score(vectors, labels)
    except ValueError as error:
        raise SelftaughtError(f"{printable(labeled)} cannot be scored: {error}") from None
    row: dict[str, object] = {**scores.row()}
    row |= {"images": len(images), "classes": max(labels) + 1, "queries": scores.queries}
    row |= {"excluded": scores.excluded, "skipped": [vars(entry) for entry in skipped]}
    text = json.dumps(row, indent=2) + "\n"
    if target is not None and not to_file:
        sys.stdout.write(text)
        return
    Console(soft_wrap=True).print(scores_table({"": scores.row()}))
    note = f"{scores.queries} queries among {len(images)} images of {row['classes']} classes"
    if scores.excluded:
        note += f"; {scores.excluded} images excluded from the score, because their class has no other image"
    print(note)
    if target is not None:
        write_atomically(target, text)


def embed(run: Path, folder: str, out: Path, device: str, allow_skipped: bool) -> None:
    check_target(out)
    images = open_images(folder, "all")
    embedder = Embedder.load(run, device)
    model = model_id(run)
    so_far = Unfinished(out, model=model, images=images_digest(images), dim=embedder.dim, batch_size=BATCH_SIZE)
    reporter = Reporter()
    if so_far.given_up:
        reporter.say(f"{printable(so_far.path)} is of other images or another model: started over")
    if so_far.done:
        reporter.say(f"going on with {printable(so_far.path)}: {so_far.done} of {len(images)} images are done")
    with closing(so_far):
        _embed_rest(embedder, images, so_far, reporter)
        skipped = [Skipped(images.files[index], reason) for index, reason in so_far.failures]
        _report_skipped(images, skipped, allow_skipped, reporter)
        images = images.without(skipped)
        written = write_vectors(out, Vectors(images.root.absolute(), images.files, so_far.vectors(), model))
        if skipped:
            table = out.with_name(f"{out.stem}.skipped.csv")
            write_atomically(table, skipped_table(skipped))
            written.append(table)
        so_far.remove()
    print(f"{len(images)} vectors of size {embedder.dim} written to {', '.join(printable(path) for path in written)}")


def _embed_rest(embedder: Embedder, images: ImageFolder, so_far: Unfinished, reporter: Reporter) -> None:
    """Embed what is still to be embedded; an interrupt keeps what is done."""
    rest = range(so_far.done, len(images))
    paths = (images.path(index) for index in rest)
    with (
        Interrupts() as interrupts,
        reporter.work("embedding images", len(images), so_far.done) as tell,
        closing(embedder.encode_batches(paths, len(rest), BATCH_SIZE)) as batches,
    ):
        for vectors, failures in batches:
            so_far.add(vectors, failures)
            tell(len(vectors) + len(failures), "")
            if interrupts.asked and so_far.done < len(images):
                so_far.save()
                raise Interrupted(
                    f"interrupted: {so_far.done} of {len(images)} images are done; the same command goes on from there"
                )
        so_far.save()


def embed_folder(
    embedder: Embedder, images: ImageFolder, allow_skipped: bool
) -> tuple[ImageFolder, Tensor, list[Skipped]]:
    """Embed all images that can be read; says which cannot."""
    reporter = Reporter()
    paths = [images.path(i) for i in range(len(images))]
    with reporter.work("embedding images", len(images)) as tell:
        vectors, failed = embedder.encode_files(paths, advance=lambda more: tell(more, ""))
    names = dict(zip(paths, images.files, strict=True)) if failed else {}
    skipped = [Skipped(names[entry.path], entry.reason) for entry in failed]
    _report_skipped(images, skipped, allow_skipped, reporter)
    return images.without(skipped), vectors, skipped


def _report_skipped(images: ImageFolder, skipped: Sequence[Skipped], allow: bool, reporter: Reporter) -> None:
    """Say which images were left out; an error if they are too many."""
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
    """A score's name as it is written in the literature."""
    return {"map@r": "MAP@R", "r_precision": "R-Precision"}.get(column, column.replace("recall", "Recall"))
