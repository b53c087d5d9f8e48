"""The demo: train on drawn product photos, show what was learned about products never seen."""

import time
from pathlib import Path
from typing import Any

from selftaught.cli.evaluate import print_scores
from selftaught.console import Reporter, duration
from selftaught.data import find_images, make_products
from selftaught.errors import SelftaughtError, printable
from selftaught.files import claim_folder, remove_leftovers
from selftaught.retrieval import score
from selftaught.run_report import write_run_report
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


def demo(out: Path, seed: int) -> None:
    began = time.monotonic()
    reporter = Reporter()
    with claim_folder(out, "the demo folder", "give another --out"):
        remove_leftovers(out)
        try:
            with reporter.work("drawing photos", PRODUCTS * PHOTOS) as tell:
                photos, unseen = make_products(out / "photos", products=PRODUCTS, photos=PHOTOS, advance=tell)
        except OSError as error:
            raise SelftaughtError(f"cannot draw photos into {printable(out)}: {error.strerror or error}") from None
        products = find_images(unseen)
        reporter.say(f"learning from the photos in {printable(photos)}, without labels")
        before = train(photos, out=out / "start", seed=seed, quiet=True, **(SETTINGS | {"epochs": 0}))
        after = train(photos, out=out / "run", seed=seed, eval=unseen, **SETTINGS)
        scores = {
            name: score(model.encode(products.paths()), products.classes()).row()
            for name, model in (("before training", before), ("after training", after))
        }
        page = write_run_report(out / "run", out=out / "report.html", before=before, reporter=reporter)
    print_scores(scores)
    start, end = (row["recall@1"] for row in scores.values())
    print(
        f"Of {len(products)} photos of {len(set(products.labels()))} products that were not in training, "
        f"{end:.1%} now have a photo of the same product nearest to them; before training, {start:.1%} had."
    )
    print(f"page:  {printable(page)}\nmodel: {printable(out / 'run')}")
    print(f"That took {duration(time.monotonic() - began)}.")
