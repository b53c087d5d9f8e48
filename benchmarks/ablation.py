"""What the parts of the method are worth on the embedded product photos, over several seeds.

    python benchmarks/ablation.py [--seeds 3] [--out FOLDER]

Trains as the demo does: the whole method, random batches instead of nearest-neighbor ones (step 1), and pairwise
similarity alone (without Eqs. 6–9). Prints Recall@1 on the products that were not in training. Takes about two
minutes per run on two cores; runs that are finished in FOLDER are not repeated.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from selftaught.cli.demo import PHOTOS, PRODUCTS, SETTINGS
from selftaught.data import find_images
from selftaught.data.products import make_products
from selftaught.embedder import Embedder
from selftaught.retrieval import recall_at_k
from selftaught.training import train

VARIANTS: dict[str, dict[str, object]] = {
    "untrained": {"epochs": 0},
    "whole method": {},
    "random batches": {"batches": "random"},
    "pairwise similarity only": {"similarity": "pairwise"},
}
WANTED = 0.15
"""How much Recall@1 is to rise by training, for every seed."""


def recall(folder: Path, photos: Path, unseen: Path, changes: dict[str, object]) -> float:
    """Recall@1 of a run on the unseen products, from a file if it was measured before."""
    result = folder / "recall.json"
    if not result.exists():
        resume = {"resume": folder} if (folder / "settings.json").exists() else {"images": photos, "out": folder}
        train(**resume, quiet=True, **({} if "resume" in resume else SETTINGS | changes))  # type: ignore[arg-type]
        images = find_images(unseen)
        vectors = Embedder.load(folder).encode([images.path(i) for i in range(len(images))])
        result.write_text(json.dumps(recall_at_k(vectors, images.classes(), ks=(1,))[1]))
    return float(json.loads(result.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description="The method and its ablations on the embedded data.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None, help="keep the runs here and go on from them")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp())
    photos, unseen = out / "photos" / "train", out / "photos" / "test"
    if not photos.exists():
        make_products(out / "photos", products=PRODUCTS, photos=PHOTOS)
    seeds = range(options.seeds)
    print(f"{'Recall@1, seeds':>26} {' '.join(f'{seed:>6}' for seed in seeds)}   mean", flush=True)
    found: dict[str, list[float]] = {}
    for name, changes in VARIANTS.items():
        runs = [out / f"{name.replace(' ', '-')}-{seed}" for seed in seeds]
        found[name] = [
            recall(run, photos, unseen, changes | {"seed": seed}) for run, seed in zip(runs, seeds, strict=True)
        ]
        values = " ".join(f"{value:6.1%}" for value in found[name])
        print(f"{name:>26} {values} {statistics.mean(found[name]):6.1%}", flush=True)
    rises = [after - before for before, after in zip(found["untrained"], found["whole method"], strict=True)]
    verdict = "PASS" if min(rises) >= WANTED else "FAIL"
    print(f"{verdict} training adds at least {100 * WANTED:.0f} points for every seed: {100 * min(rises):.1f} or more")
    for name in ("random batches", "pairwise similarity only"):
        margins = [whole - part for whole, part in zip(found["whole method"], found[name], strict=True)]
        verdict = "PASS" if min(margins) > 0 else "FAIL"
        print(f"{verdict} {name} is worse for every seed, by {100 * min(margins):.1f} points or more")


if __name__ == "__main__":
    main()
