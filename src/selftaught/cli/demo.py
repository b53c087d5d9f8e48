"""The demo: train on drawn product photos, show what was learned about products never seen."""

import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from selftaught.cli.model_commands import scores_table, title
from selftaught.console import Reporter, duration
from selftaught.data import ImageFolder, find_images, make_products
from selftaught.embedder import Embedder
from selftaught.errors import printable
from selftaught.files import new_folder, write_atomically
from selftaught.report import Section, Tile, contact_sheet, retrieval_rows, write_page
from selftaught.retrieval import nearest, score
from selftaught.training import train

SETTINGS: dict[str, Any] = {
    "recipe": "official",
    "backbone": "small",
    "dim": 128,
    "epochs": 20,
    "batch_size": 48,
    "neighbors": 4,
    "lr": 1e-3,
    "head_lr": 1e-3,
    "momentum": 0.9,
    "crop_scale": (0.3, 1.0),
}
PRODUCTS, PHOTOS = 240, 8
SHOWN = 6
"""Queries on the picture, and neighbors of each."""


def demo(out: Path, seed: int) -> None:
    began = time.monotonic()
    reporter = Reporter()
    new_folder(out, "the demo folder", "give another --out")
    with reporter.work("drawing photos", PRODUCTS * PHOTOS) as tell:
        photos, unseen = make_products(
            out / "photos", products=PRODUCTS, photos=PHOTOS, progress=lambda _done, _total: tell(1, "")
        )
    products = find_images(unseen)
    reporter.say(f"learning from the photos in {printable(photos)}, without labels")
    before = train(photos, out=out / "start", seed=seed, quiet=True, **(SETTINGS | {"epochs": 0}))
    after = train(photos, out=out / "run", seed=seed, eval=unseen, **SETTINGS)
    vectors = {"before training": _embed(before, products), "after training": _embed(after, products)}
    scores = {name: score(z, products.classes()).row() for name, z in vectors.items()}
    start, end = (row["recall@1"] for row in scores.values())
    summary = (
        f"Of {len(products)} photos of {len(set(products.labels()))} products that were not in training, "
        f"{end:.1%} now have a photo of the same product nearest to them; before training, {start:.1%} had."
    )
    picture, page = out / "retrievals.png", out / "report.html"
    sheet = _picture(products, vectors)
    write_atomically(picture, lambda file: sheet.save(file, "PNG"))
    columns = list(scores["after training"])
    table = [["", *map(title, columns)]]
    table += [[name, *(f"{row[column]:.1%}" for column in columns)] for name, row in scores.items()]
    write_page(
        page,
        "What was learned without labels",
        summary,
        [
            Section("Scores on products never seen in training", "", table=table),
            Section("What it retrieves", "A query at the left of each row, then its nearest photos.", image=sheet),
            Section("How training went", "", image=out / "run" / "curves.png"),
        ],
    )
    Console(soft_wrap=True).print(scores_table(scores))
    print(summary)
    print(f"picture: {printable(picture)}\npage:    {printable(page)}\nmodel:   {printable(out / 'run')}")
    print(f"That took {duration(time.monotonic() - began)}.")


def _embed(model: Embedder, images: ImageFolder) -> Tensor:
    return model.encode([images.path(i) for i in range(len(images))])


def _picture(images: ImageFolder, vectors: dict[str, Tensor]) -> Image.Image:
    """The same queries before and after: evenly spaced over the products, not chosen by how well they do."""
    queries = torch.linspace(0, len(images) - 1, 2 * SHOWN + 1)[1::2].long()
    paths = [Path(images.path(i)) for i in range(len(images))]
    rows: list[list[Tile]] = []
    headings: dict[int, str] = {}
    for name, z in vectors.items():
        distances, indices = nearest(z[queries], z, SHOWN, exclude=queries)
        headings[len(rows)] = name.capitalize()
        rows += retrieval_rows(paths, images.labels(), indices, distances, queries.tolist())
    return contact_sheet(rows, headings=headings)
