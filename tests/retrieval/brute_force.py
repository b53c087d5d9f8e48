"""Retrieval as plain loops in float64, to test the blocked search against."""

import math
from collections.abc import Sequence

from torch import Tensor


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def ranking(query: Sequence[float], gallery: Sequence[Sequence[float]], exclude: int | None = None) -> list[int]:
    """Gallery rows from near to far, the excluded one left out."""
    rows = [row for row in range(len(gallery)) if row != exclude]
    return sorted(rows, key=lambda row: distance(query, gallery[row]))


def metrics(embeddings: Tensor, labels: Sequence[int], ks: Sequence[int]) -> dict[str, float]:
    """Recall@k by "recall@k", "map@r", "r-precision", "queries" and "excluded"."""
    rows = embeddings.double().tolist()
    hits, precisions, averages = dict.fromkeys(ks, 0), [], []
    for query, label in enumerate(labels):
        r = sum(other == label for other in labels) - 1
        if r == 0:
            continue
        right = [labels[row] == label for row in ranking(rows[query], rows, exclude=query)]
        for k in ks:
            hits[k] += any(right[:k])
        precisions.append(sum(right[:r]) / r)
        averages.append(sum(sum(right[: i + 1]) / (i + 1) for i in range(r) if right[i]) / r)
    n = len(precisions)
    found = {f"recall@{k}": hits[k] / n for k in ks}
    return found | {
        "map@r": sum(averages) / n,
        "r-precision": sum(precisions) / n,
        "queries": n,
        "excluded": len(labels) - n,
    }
