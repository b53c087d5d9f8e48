"""Similarity along a neighbor graph, by diffusion, and the pairs for which it disagrees with similarity in space."""

from typing import NamedTuple

import torch
from torch import Tensor

from selftaught.retrieval import nearest

ALPHA = 0.99
ITERATIONS = 20
"""Steps of conjugate gradients. Part of the method: on large graphs they do not converge, so the result stays local."""
TOLERANCE = 1e-10
POWER = 3
"""Similarities are raised to this power, so that edges between near images count more."""
BLOCK = 1024
"""The number of anchors that are processed together."""


class Pools(NamedTuple):
    """Up to k images for each of n anchors, the best first, then -1."""

    positives: Tensor
    """n×k: near along the graph, and not in space."""
    weights: Tensor
    """n×k: how near each positive is along the graph."""
    negatives: Tensor
    """n×k: near in space, and not along the graph."""


def neighbor_graph(vectors: Tensor, k: int) -> Tensor:
    """The normalized graph of n×d vectors of length 1, a sparse n×n matrix.

    Two rows are linked if each is among the other's k nearest (a row counts as its own), with weight cosine³.
    """
    n, k = len(vectors), min(k, len(vectors))
    distances, near = nearest(vectors, vectors, k - 1, exclude=torch.arange(n, device=vectors.device))
    first, second = torch.arange(n, device=vectors.device).repeat_interleave(k - 1), near.flatten()
    mutual = torch.isin(first * n + second, second * n + first)
    first, second, distances = first[mutual], second[mutual], distances.flatten()[mutual].double()
    weights = (1 - distances.square() / 2).clamp(min=0).pow(POWER)
    degrees = torch.zeros(n, dtype=weights.dtype, device=weights.device).index_add_(0, first, weights)
    scale = torch.where(degrees > 0, degrees, 1).rsqrt()
    values = weights * scale[first] * scale[second]
    return torch.sparse_coo_tensor(torch.stack([first, second]), values, (n, n), check_invariants=True).coalesce()


def diffuse(graph: Tensor, anchors: Tensor) -> Tensor:
    """f of (I - α S) f = e for each of b anchors, by conjugate gradients: n×b."""
    n, b = len(graph), len(anchors)
    f = torch.zeros(n, b, dtype=graph.dtype, device=graph.device)
    residual = torch.zeros_like(f)
    residual[anchors, torch.arange(b, device=graph.device)] = 1
    direction, norms = residual.clone(), residual.square().sum(0)
    for _ in range(ITERATIONS):
        going = norms > TOLERANCE**2
        if not bool(going.any()):
            break
        turned = direction - ALPHA * torch.sparse.mm(graph, direction)
        step = torch.where(going, norms / (direction * turned).sum(0).clamp(min=1e-300), 0)
        f += step * direction
        residual -= step * turned
        before, norms = norms, residual.square().sum(0)
        direction = residual + torch.where(going, norms / before, 0) * direction
    return f


@torch.no_grad()
def mine(vectors: Tensor, graph_neighbors: int, near: int, far: int, most: int) -> Pools:
    """The pools of all images, from n×d vectors of length 1.

    Args:
        graph_neighbors: k of the graph.
        near: positives are among this many nearest along the graph, but not in space; the anchor counts.
        far: negatives are among this many nearest in space, but not along the graph.
        most: the largest number of each kind.
    """
    graph, n = neighbor_graph(vectors, graph_neighbors), len(vectors)
    near, far = min(near, n), min(far, n)
    parts = []
    for anchors in torch.arange(n, device=vectors.device).split(BLOCK):
        values, along = diffuse(graph, anchors).T.topk(max(near, far), dim=1)
        along = along.masked_fill(values <= 0, -1)  # out of reach, so without an order
        _, around = nearest(vectors[anchors], vectors, max(near, far))
        positives, order = _left(along[:, :near], around[:, :near], most)
        negatives, _ = _left(around[:, :far], along[:, :far], most)
        weights = values[:, :near].gather(1, order).masked_fill(positives < 0, 0)
        parts.append(Pools(positives, weights, negatives))
    return Pools(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _left(some: Tensor, others: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The entries of each row that are not in the same row of ``others``, in order, then -1; and their positions."""
    out = (some[:, :, None] == others[:, None]).any(2) | (some < 0)
    order = out.to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    return some.gather(1, order).masked_fill(out.gather(1, order), -1), order
