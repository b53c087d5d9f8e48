"""The method as plain loops over rows in float64, to test the tensor code against. Slow and obvious."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Matrix = list[list[float]]
Semantics = Literal["official", "paper"]


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def normalized(row: Sequence[float]) -> list[float]:
    norm = math.sqrt(sum(x * x for x in row))
    return [x / norm for x in row]


def pairwise(teacher: Matrix, sigma: float) -> Matrix:
    """Eq. 5."""
    t = [normalized(row) for row in teacher]
    return [[math.exp(-(distance(a, b) ** 2) / sigma) for b in t] for a in t]


def neighborhoods(teacher: Matrix, k: int, ids: Sequence[int] | None) -> list[list[int]]:
    """N_k(i), nearest first: i itself, then the rows of the same image, then the others."""
    t = [normalized(row) for row in teacher]
    n = len(t)

    def rank(i: int, j: int) -> tuple[bool, bool, float]:
        return j != i, ids is not None and ids[j] != ids[i], distance(t[i], t[j])

    return [sorted(range(n), key=lambda j: rank(i, j))[:k] for i in range(n)]


def contextual(teacher: Matrix, k: int, ids: Sequence[int] | None = None) -> Matrix:
    """Eqs. 6–9, with sets."""
    n = len(teacher)
    near = neighborhoods(teacher, k, ids)
    reciprocal = [{j for j in near[i] if i in near[j]} for i in range(n)]  # Eq. 6
    overlap = [[0.0] * n for _ in range(n)]  # Eq. 7
    for i in range(n):
        for j in reciprocal[i]:
            overlap[i][j] = len(reciprocal[i] & reciprocal[j]) / len(reciprocal[i])
    expanded = [[0.0] * n for _ in range(n)]  # Eq. 8
    for i in range(n):
        nearest = near[i][: max(1, round(k / 2))]
        for j in range(n):
            expanded[i][j] = sum(overlap[h][j] for h in nearest) / len(nearest)
    return [[(expanded[i][j] + expanded[j][i]) / 2 for j in range(n)] for i in range(n)]  # Eq. 9


def contextualized(teacher: Matrix, k: int, sigma: float, ids: Sequence[int] | None = None) -> Matrix:
    """Eq. 10."""
    first, second = pairwise(teacher, sigma), contextual(teacher, k, ids)
    return [[(p + c) / 2 for p, c in zip(*rows, strict=True)] for rows in zip(first, second, strict=True)]


def relative(z: Matrix) -> Matrix:
    """d_ij, each row over its mean, the diagonal included."""
    n = len(z)
    distances = [[distance(a, b) for b in z] for a in z]
    return [[d / (sum(row) / n) if sum(row) else 0.0 for d in row] for row in distances]


def contrastive(z: Matrix, weights: Matrix, delta: float, semantics: Semantics) -> float:
    """Eq. 1."""
    n = len(z)
    d = relative(z)
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                total += weights[i][j] * d[i][j] ** 2
                total += (1 - weights[i][j]) * max(delta - d[i][j], 0.0) ** 2
    return total / (n * (n - 1) if semantics == "official" else n)


def distillation(f: Matrix, g: Matrix, semantics: Semantics) -> float:
    """Eq. 2."""
    n = len(f)
    d_f, d_g = relative(f), relative(g)
    total = 0.0
    for i in range(n):
        columns = [j for j in range(n) if semantics == "official" or j != i]
        sum_f = sum(math.exp(-d_f[i][j]) for j in columns)
        sum_g = sum(math.exp(-d_g[i][j]) for j in columns)
        for j in columns:
            p, q = math.exp(-d_g[i][j]) / sum_g, math.exp(-d_f[i][j]) / sum_f
            total += p * math.log(p / q)
    return total / n


def stml(
    f: Matrix, g: Matrix, teacher: Matrix, ids: Sequence[int], k: int, sigma: float, delta: float, semantics: Semantics
) -> float:
    """Eq. 3; only the authors' code lets the rows of one image be nearest to each other."""
    weights = contextualized(teacher, k, sigma, ids if semantics == "official" else None)
    both = contrastive(f, weights, delta, semantics) + contrastive(g, weights, delta, semantics)
    return both / 2 + distillation(f, g, semantics)


def averaged(teacher: Tensor, student: Tensor, momentum: float) -> Tensor:
    """Eq. 4, number by number."""
    pairs = zip(teacher.flatten().tolist(), student.flatten().tolist(), strict=True)
    values = [momentum * t + (1 - momentum) * s for t, s in pairs]
    return torch.tensor(values, dtype=torch.float64).reshape(teacher.shape)


def batch(embeddings: Matrix, queries: Sequence[int], neighbors: int) -> list[int]:
    """Step 1: each query followed by its nearest others."""
    rows = []
    for query in queries:
        others = [j for j in range(len(embeddings)) if j != query]
        others.sort(key=lambda j: distance(embeddings[query], embeddings[j]))
        rows += [query, *others[: neighbors - 1]]
    return rows


def matrix(x: Tensor) -> Matrix:
    return x.detach().double().tolist()


def tensor(x: Matrix) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)
