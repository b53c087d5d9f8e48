"""How well MOM's mined pools, and the similarities of STML, tell pairs of one class from other pairs.

    python benchmarks/pools.py [--data FOLDER] [--model tf_efficientnet_lite0]

The images are those of class folders, or drawn products with 8 photos of each, embedded by a network as both methods
find it before their first step. Printed is the AUROC of class equivalence over all pairs, over those in STML's batches
of images with their nearest neighbors, and over those in MOM's pools: pairs where its graph and its space disagree.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from selftaught.data import make_products, open_images
from selftaught.embedder import Embedder
from selftaught.learners import STMLSettings
from selftaught.learners.manifold import Pools, diffuse, neighbor_graph
from selftaught.learners.mom import mine_pools, mining_vectors, pool_sizes
from selftaught.method import contextual_from_pairwise, neighbor_batches, pairwise_similarity
from selftaught.reproduce.figures.relations import auroc

BATCHES = 10
MOST = 10_000
"""Images: every two of them are compared at once."""


def pool_pairs(pools: Pools) -> tuple[Tensor, Tensor, Tensor]:
    """All pairs of an anchor and an image of its pools: the anchors, the others, and which are called positive."""
    parts = []
    for pool, positive in ((pools.positives, True), (pools.negatives, False)):
        anchors, places = (pool >= 0).nonzero(as_tuple=True)
        parts.append((anchors, pool[anchors, places], torch.full_like(anchors, positive, dtype=torch.bool)))
    anchors, others, called = (torch.cat(column) for column in zip(*parts, strict=True))
    return anchors, others, called


def score_pools(pools: Pools, classes: Tensor) -> float:
    """AUROC of "is in the pool of positives" among the pairs of all pools, against "is of one class"."""
    anchors, others, called = pool_pairs(pools)
    return auroc(called.float(), classes[anchors] == classes[others])


def compare_stml(features: Tensor) -> dict[str, Tensor]:
    """STML's similarities of n×d features, each n×n, with as many images in a neighborhood as in training."""
    settings = STMLSettings()
    pairwise = pairwise_similarity(features, settings.sigma)
    contextual = contextual_from_pairwise(pairwise, settings.per_query)
    return {
        "STML: pairwise similarity, as cosines rank": pairwise,
        "STML: contextual similarity": contextual,
        "STML: both together, its labels": (pairwise + contextual) / 2,
    }


def compare_mom(features: Tensor) -> dict[str, Tensor]:
    """What MOM mines its pools from, each n×n."""
    vectors, (_, graph) = mining_vectors(features), pool_sizes(len(features))
    along = diffuse(neighbor_graph(vectors, graph), torch.arange(len(features))).T
    return {"MOM: cosines of whitened features": vectors @ vectors.T, "MOM: nearness along the graph": along}


def score_batches(features: Tensor, classes: Tensor, mom: dict[str, Tensor]) -> dict[str, float]:
    """AUROC within nearest-neighbor batches, where STML compares images: the mean over batches."""
    k = STMLSettings().per_query
    size = min(120, len(features) // k * k)
    drawn = neighbor_batches(features, size, k, torch.Generator().manual_seed(0))[:BATCHES]
    found: dict[str, list[float]] = {}
    for batch in drawn:
        pairs, same = batch[:, None] != batch, classes[batch][:, None] == classes[batch]
        here = {name: scores[batch][:, batch] for name, scores in mom.items()}
        for name, scores in (compare_stml(features[batch]) | here).items():
            found.setdefault(name, []).append(auroc(scores[pairs], same[pairs]))
    return {name: float(torch.tensor(values).nanmean()) for name, values in found.items()}


def measure(features: Tensor, classes: Tensor) -> list[tuple[str, ...]]:
    """The rows to print: what is scored, and its AUROC over all pairs, those in batches, and those of the pools."""
    pools, mom = mine_pools(features), compare_mom(features)
    anchors, others, called = pool_pairs(pools)
    right = classes[anchors] == classes[others]
    same, every = classes[:, None] == classes, ~torch.eye(len(classes), dtype=torch.bool)
    in_batches, rows = score_batches(features, classes, mom), list[tuple[str, ...]]()
    for name, scores in (compare_stml(features) | mom).items():
        values = auroc(scores[every], same[every]), in_batches[name], auroc(scores[anchors, others], right)
        rows.append((name, *(f"{value:.3f}" for value in values)))
    rows.append(("MOM: its pools", "–", "–", f"{score_pools(pools, classes):.3f}"))
    for kind, some in (("positives", called), ("negatives", ~called)):
        share, of_one = int(some.sum()) / len(classes), float(right[some].float().mean())
        rows.append((f"– {kind} of one class, {share:.1f} for each image", "–", "–", f"{100 * of_one:.1f} %"))
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="tf_efficientnet_lite0")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if given.data is None:
            make_products(Path(folder, "drawn"), products=40, photos=8, class_folders=True)
        images = open_images(given.data or Path(folder, "drawn"))
        if len(images) > MOST:
            parser.error(f"{len(images):,} images are too many to compare every two of them: give at most {MOST:,}")
        classes = torch.tensor(images.classes())
        features = Embedder.load(given.model).encode([images.path(i) for i in range(len(images))], show_progress=True)
    print(f"{len(images):,} images of {len(classes.unique())} classes\n")
    print("| AUROC of | all pairs | pairs in STML's batches | pairs in MOM's pools |\n|---|---:|---:|---:|")
    for row in measure(features, classes):
        print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
