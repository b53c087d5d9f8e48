"""selftaught search: the images nearest to some queries, in an index, a folder or a file of vectors."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from PIL import ExifTags
from torch import Tensor

from selftaught.cli.model_use import embed_folder, embed_whitened, load_model, refuse_options
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import open_image, open_images
from selftaught.embedder import Embedder
from selftaught.errors import ImageError, SelftaughtError, UsageError, printable
from selftaught.files import check_output, plain_path, to_csv, write_atomically
from selftaught.index import Hit, Index, is_index, open_index, scale_of
from selftaught.report import rate, search_sheet
from selftaught.retrieval import nearest
from selftaught.vectors import SUFFIXES, Vectors, read_vectors_of

SHEET_IMAGES = 500
"""The most images on a contact sheet; the table has all."""

OWN_SHEET, OWN_JSON = b"selftaught search\\0", rb'\A\[\n \{\n  "query": '
"""What the files of this command are recognized by."""
COLUMNS = ("query", "rank", "path", "distance", "closer_than")

Found = list[tuple[Path, list[Hit]]]
Ask = Callable[[Tensor, int], list[list[Hit]]]
"""(q×dim, k) → the k nearest of each query."""


@dataclass(frozen=True)
class Output:
    """Where results go; ``-`` is standard output."""

    sheet: Path | None = None
    json: Path | None = None
    csv: Path | None = None

    def check(self) -> None:
        own_csv = rb"\A" + to_csv([COLUMNS]).encode()
        files = (self.sheet, OWN_SHEET, "--out"), (self.json, OWN_JSON, "--json"), (self.csv, own_csv, "--csv")
        paths = [path for path, _, _ in files if path is not None]
        for path, own, option in files:
            if path is not None and str(path) != "-":
                check_output(path, own, option)
        if str(self.json) == str(self.csv) == "-":
            raise UsageError("--json - and --csv - cannot both be printed: give one of them a file")
        if len(set(map(plain_path, paths))) < len(paths):
            raise UsageError("two of --out, --json and --csv name one file: give each its own")


def search(
    use: ModelUse,
    queries: Sequence[Path],
    within: str | None,
    k: int,
    output: Output,
    root: Path | None,
    exact: bool,
    allow_skipped: bool,
) -> None:
    """Find the nearest images, print them, and draw the sheet."""
    output.check()
    if root is not None and not root.is_dir():
        raise UsageError(f"there is no folder {printable(root)}")
    for query in queries:
        try:  # before the collection is embedded, not after
            if not query.is_dir():
                open_image(query, least=1)
        except ImageError as error:
            raise ImageError(f"cannot read {printable(query)}: {error}") from None
    index = None
    if is_index(use.run):
        refuse_options(use)
        if within is not None:
            raise UsageError(f"{printable(use.run)} is an index, which is searched itself: leave --in out")
        index = open_index(use.run, use.device)
        ask: Ask = partial(index.search_vectors, exact=exact, root=root)
        embedder, size, places = index.embedder, len(index), index.table.roots()
    else:
        embedder, known = _open_collection(use, within, allow_skipped)
        size, places, ask = len(known.paths), [str(known.root)], _search_vectors(known, root, embedder.device)
    paths, vectors = _embed_queries(embedder, queries, allow_skipped)
    found = _without_queries(paths, vectors, ask, k, size)
    if not any(near for _, near in found):
        raise SelftaughtError(f"there is nothing in {printable(within or use.run)} besides the query itself")
    gone = [place for place in places if not Path(place).exists()]
    if root is None and gone:
        Reporter().say(f"{printable(gone[0])} is gone: if the photos have moved, --root says where they are")
    _write(found, output, index)


def _open_collection(use: ModelUse, within: str | None, allow_skipped: bool) -> tuple[Embedder, Vectors]:
    """A model and its vectors of a collection: read from a file, or made now from images."""
    if within is None:
        load_model(use)  # raises an error if there is none
        raise UsageError(
            f"{printable(use.run)} is a model: name the images by --in FOLDER, or make an index of them with "
            "selftaught index, and search that"
        )
    if is_index(within):
        raise UsageError(
            f"{printable(within)} is an index, which holds its model: selftaught search {printable(within)} QUERY"
        )
    if Path(within).suffix in SUFFIXES and not Path(within).is_dir():
        embedder = load_model(use)
        if use.whiten:
            raise UsageError(
                f"{printable(within)} is made already: give the whitened model it was made with, no --whiten"
            )
        return embedder, read_vectors_of(Path(within), embedder)
    images = open_images(within, "all", allow_skipped=allow_skipped)
    embedder, images, vectors, _ = embed_whitened(load_model(use), use.whiten, images, allow_skipped)
    return embedder, Vectors(images.root, images.files, vectors, embedder.identity, embedder.metric)


def _search_vectors(known: Vectors, root: Path | None, device: torch.device) -> Ask:
    collection, place = known.vectors.to(device), root or known.root
    scale = scale_of(known.vectors)

    def ask(vectors: Tensor, count: int) -> list[list[Hit]]:
        distances, indices = nearest(vectors.to(device), collection, min(count, len(known.paths)))
        rows = zip(distances.tolist(), indices.tolist(), strict=True)
        return [
            [Hit(place / known.paths[i], d, scale.closer_than(d)) for d, i in zip(*row, strict=True)] for row in rows
        ]

    return ask


def _embed_queries(embedder: Embedder, queries: Sequence[Path], allow_skipped: bool) -> tuple[list[Path], Tensor]:
    """The query images, also those in folders, and their vectors."""
    paths, parts = [], []
    for query in queries:
        if query.is_dir():
            images = open_images(query, allow_skipped=allow_skipped)
            images, vectors, _ = embed_folder(embedder, images, allow_skipped)
            paths += [images.root / file for file in images.files]
        else:
            vectors = embedder.encode([query])
            paths.append(query)
        parts.append(vectors)
    return paths, torch.cat(parts)


def _without_queries(paths: Sequence[Path], vectors: Tensor, ask: Ask, k: int, size: int) -> Found:
    """The k nearest of each query, without the query's own file under any name; all paths in one form."""
    found: dict[int, list[Hit]] = {}
    count, rest = max(1, min(k + 1, size)), list(range(len(paths)))
    while rest:
        for number, near in zip(rest, ask(vectors[rest], count), strict=True):
            found[number] = [one for one in near if not _is_same_file(one.path, paths[number])][:k]
        rest = [number for number in rest if len(found[number]) < k] if count < size else []
        count = min(2 * count, size)
    plain = [[one._replace(path=plain_path(one.path)) for one in found[number]] for number in range(len(paths))]
    return list(zip(map(plain_path, paths), plain, strict=True))


def _write(found: Found, output: Output, index: Index | None) -> None:
    targets = [(str(one), content(found)) for one, content in ((output.json, _json), (output.csv, _csv)) if one]
    printed = any(target == "-" for target, _ in targets)
    for target, content in targets:
        if target == "-":
            sys.stdout.write(content)
        else:
            write_atomically(Path(target), content)
            print(f"results: {printable(target)}", file=sys.stderr if printed else sys.stdout)
    if not targets:
        _print_table(found)
    if output.sheet is not None:
        shown = _fitting(found)
        kept = index.thumbnails([one.path for _, near in shown for one in near]) if index is not None else {}
        sheet = search_sheet(shown, kept)
        exif = sheet.getexif()
        exif[ExifTags.Base.Software] = "selftaught search"
        kind = "JPEG" if output.sheet.suffix.lower() in (".jpg", ".jpeg") else "PNG"
        write_atomically(output.sheet, lambda file: sheet.save(file, kind, exif=exif))
        some = f" of the first {len(shown)} queries" if len(shown) < len(found) else ""
        print(f"contact sheet{some}: {printable(output.sheet)}", file=sys.stderr if printed else sys.stdout)


def _print_table(found: Found) -> None:
    for query, near in found:
        if len(found) > 1:
            print(f"query {printable(query)}")
        for rank, one in enumerate(near, 1):
            print(f"{rank:3d}  distance {one.distance:.4f}  {rate(one.closer_than):28}  {printable(one.path)}")


def _json(found: Found) -> str:
    def row(rank: int, near: Hit) -> dict[str, object]:
        return {"rank": rank, "path": str(near.path), "distance": near.distance, "closer_than": near.closer_than}

    content = [{"query": str(query), "neighbors": [row(*pair) for pair in enumerate(near, 1)]} for query, near in found]
    return json.dumps(content, indent=1) + "\n"


def _csv(found: Found) -> str:
    rows: list[tuple[object, ...]] = [COLUMNS]
    for query, near in found:
        for rank, one in enumerate(near, 1):
            rows.append((query, rank, one.path, f"{one.distance:.6g}", one.closer_than))
    return to_csv(rows)


def _fitting(found: Found) -> Found:
    """As many of the queries as fit on a sheet."""
    shown: Found = []
    room = SHEET_IMAGES
    for query, near in found:
        if shown and len(near) > room:
            break
        shown.append((query, near[:SHEET_IMAGES]))
        room -= len(near)
    return shown


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # gone, or inside a shard
        return plain_path(path) == plain_path(other)
