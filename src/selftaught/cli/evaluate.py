"""selftaught evaluate: scores of a model on labeled images."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from selftaught.cli.model_use import embed_folder, embed_whitened, load_model, load_whitened, whiten
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter, print_table
from selftaught.data import ImageFolder, open_images
from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, counted, printable
from selftaught.files import check_output, write_atomically
from selftaught.model_files import DESCRIPTION
from selftaught.networks import weights_on_disk
from selftaught.report import chance
from selftaught.retrieval import Scores, score
from selftaught.run_folder import FLOOR

TITLES = {"map@r": "MAP@R", "r_precision": "R-Precision"}
"""Names of scores in the literature."""
KEPT = "without training"
"""The name of the untrained model that a run has kept."""


def evaluate(
    use: ModelUse,
    labeled: str,
    target: Path | None,
    level: str | None,
    labels: str | None,
    floor: bool,
    allow_skipped: bool,
) -> None:
    printed = str(target) == "-"
    if target is not None and not printed:
        check_output(target, rb'\A\{\n  "recall@1": ', "--json")
    images = open_images(labeled, "test", level=level, labels=labels, allow_skipped=allow_skipped)
    known = images.without_broken_strays()
    known.check_classes()
    reporter = Reporter()
    if "--level" in (classes := known.describe_labels()):  # another level would give other classes
        reporter.say(classes)
    embedder, images, vectors, skipped = embed_whitened(load_model(use), use.whiten, images, allow_skipped)
    images.check_classes()  # those that are left
    numbers = images.classes()
    rows: dict[str, Scores] = {}
    try:
        rows["model"] = score(vectors.to(embedder.device), numbers)
    except ValueError as error:
        raise SelftaughtError(f"{printable(labeled)} cannot be scored: {error}") from None
    for name, untrained in (_floors(use, embedder, images) if floor else {}).items():
        reporter.say(f"to compare: {name}")
        _, vectors, _ = embed_folder(untrained, images, allow_skipped)
        rows[name] = score(vectors.to(untrained.device), numbers)
    scores = rows["model"]
    row: dict[str, object] = {**scores.row()}
    row |= {"images": len(images), "classes": max(numbers) + 1, "queries": scores.queries}
    row |= {"excluded": scores.excluded, "skipped": [vars(entry) for entry in skipped]}
    row |= {name.replace(" ", "_"): each.row() for name, each in rows.items() if name != "model"}
    text = json.dumps(row, indent=2) + "\n"
    if printed:
        sys.stdout.write(text)
        return
    named = {name if len(rows) > 1 else "": each.row() for name, each in rows.items()}
    print_scores(named)
    note = f"{scores.queries} queries among {len(images)} images of {row['classes']} classes"
    if scores.excluded:
        note += f"; {counted(scores.excluded, 'image')} excluded from the score: no other is of its class"
    print(note)
    if len(rows) > 1:
        noise = 200 * chance(scores.recall[1], scores.queries)
        print(f"models whose Recall@1 differs by less than {noise:.1f} points may be equally good")
    if KEPT in rows:
        print(f"{KEPT}: the readout that the run has kept; its own verdict compares with the best of several")
    if target is not None:
        write_atomically(target, text)


def _floors(use: ModelUse, embedder: Embedder, images: ImageFolder) -> dict[str, Embedder]:
    """What training must beat: the untrained model that a run has kept, unless it serves that, and the plain backbone.

    The first pools as the run does, and is whitened where that is better: against the second alone, its gain would
    count as that of training. For the same reason both are whitened on these images where the trained model is.
    """
    floors: dict[str, Embedder] = {}
    kept = Path(use.run, FLOOR)
    if (kept / DESCRIPTION).is_file():
        floors[KEPT] = load_whitened(replace(use, run=str(kept)), images)
    if (plain := _plain(embedder)) is not None:
        trained = embedder.description["recipe"] != "none"
        floors["plain backbone"] = whiten(plain, images) if use.whiten and trained else plain
    return {name: floor for name, floor in floors.items() if floor.identity != embedder.identity}


def _plain(embedder: Embedder) -> Embedder | None:
    """The pretrained backbone of a model, with the same views; None if it is not on this disk."""
    about = embedder.description
    if about["own_backbone"] or not weights_on_disk(about["backbone"]):
        return None
    plain = Embedder.plain(about["backbone"], embedder.device)
    if plain.description["backbone"] != about["backbone"]:
        return None
    size = None if embedder.preprocessing.fixed_size else embedder.preprocessing.use_size
    return plain.seeing(size, embedder.mirror, embedder.scales)


def print_scores(rows: dict[str, dict[str, float]]) -> None:
    """Print scores in percent, one line per model; a single one needs no name."""
    named, first = any(rows), next(iter(rows.values()))
    titles = [TITLES.get(score, score.replace("recall", "Recall")) for score in first]
    lines = [[name] * named + [f"{value:.1%}" for value in row.values()] for name, row in rows.items()]
    print_table([""] * named + titles, lines, left=named)
