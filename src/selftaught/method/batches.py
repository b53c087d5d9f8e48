"""Step 1: batches of queries, each with its nearest neighbors in the student's embedding space."""

from collections.abc import Iterator

import torch
from torch import Tensor

from selftaught.parallel import gather_rows, shard
from selftaught.retrieval import Search, nearest


def parallel_search(
    queries: Tensor, gallery: Tensor, k: int, *, exclude: Tensor | None = None, search: Search = nearest
) -> tuple[Tensor, Tensor]:
    """The search with its queries shared by all processes; every process gets the whole result."""
    count = len(queries)
    own = shard(count)
    part = slice(own.start, own.stop)
    distances, indices = search(queries[part], gallery, k, exclude=None if exclude is None else exclude[part])
    return gather_rows(distances, count), gather_rows(indices, count)


def neighbor_batches(
    embeddings: Tensor, batch_size: int, neighbors: int, generator: torch.Generator, search: Search = nearest
) -> Tensor:
    """One epoch of nearest-neighbor batches.

    Queries are drawn without replacement; each comes with its ``neighbors - 1`` nearest images, so an
    image may come twice in a batch. Only the neighbors of the drawn queries are searched for.

    Args:
        embeddings: n×d, one row per training image.
        batch_size: images in a batch, a multiple of ``neighbors``.
        neighbors: images per query, the query itself included.
        generator: a CPU generator; its state alone decides the draw.
        search: how neighbors are found.

    Returns:
        steps×batch_size image indices on the CPU, steps = n // batch_size, each query followed by its neighbors.
    """
    if not 1 <= neighbors <= batch_size or batch_size % neighbors:
        raise ValueError(f"batch_size = {batch_size} must be a multiple of neighbors = {neighbors}")
    n = len(embeddings)
    steps = n // batch_size
    if steps == 0:
        raise ValueError(f"a batch of {batch_size} images needs at least as many images, but there are {n}")
    queries = torch.randperm(n, generator=generator)[: steps * batch_size // neighbors]
    rows = queries[:, None]
    if neighbors > 1:
        asked = queries.to(embeddings.device)
        _, near = search(embeddings[asked], embeddings, neighbors - 1, exclude=asked)
        rows = torch.cat([rows, near.cpu()], dim=1)
    return rows.reshape(steps, batch_size)


def random_batches(n: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """One epoch of random batches, each image at most once: the paper's ablation of step 1."""
    return torch.randperm(n, generator=generator)[: n // batch_size * batch_size].reshape(-1, batch_size)


def class_batches(
    classes: Tensor, batch_size: int, per_class: int, generator: torch.Generator, steps: int | None = None
) -> Tensor:
    """One epoch of class-balanced batches (the paper's pk-sampling), for methods with labels or pseudo labels.

    Args:
        classes: n class numbers, one per training image, on the CPU.
        batch_size: images in a batch, a multiple of ``per_class``.
        per_class: images of one class in a batch. A class with fewer gives some of them again.
        generator: a CPU generator; its state alone decides the draw.
        steps: the number of batches, by default n // batch_size.

    Returns:
        steps×batch_size image indices. A class comes twice in a batch only if there are too few of them.

    Example:
        >>> import torch
        >>> classes = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
        >>> batch = class_batches(classes, 4, 2, torch.Generator().manual_seed(0))[0]
        >>> classes[batch].bincount().max()
        tensor(2)
    """
    n = len(classes)
    steps = n // batch_size if steps is None else steps
    if per_class < 1 or batch_size % per_class or steps < 1:
        raise ValueError(f"batch_size = {batch_size} must be a multiple of {per_class}, and at most the {n} images")
    members = classes.argsort(stable=True).split(classes.unique(return_counts=True)[1].tolist())
    batches = []
    for _ in range(steps):
        batch: list[Tensor] = []
        while len(batch) < batch_size // per_class:
            order = torch.randperm(len(members), generator=generator).tolist()
            batch += [draw(members[c], per_class, generator) for c in order[: batch_size // per_class - len(batch)]]
        batches.append(torch.cat(batch))
    return torch.stack(batches)


def draw(members: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` of the members in random order; they repeat if there are too few."""
    order = members[torch.randperm(len(members), generator=generator)]
    return order.repeat(-(-count // len(order)))[:count]


class NeighborBatchSampler:
    """The nearest-neighbor batches as a ``batch_sampler`` for a DataLoader of your own.

    Give it new embeddings with :meth:`update` before every epoch; each pass over it draws new queries.

    Example:
        >>> import torch
        >>> sampler = NeighborBatchSampler(torch.randn(40, 8), batch_size=10, neighbors=5)
        >>> len(sampler), [len(batch) for batch in sampler]
        (4, [10, 10, 10, 10])
    """

    def __init__(self, embeddings: Tensor, batch_size: int = 120, neighbors: int = 5, seed: int = 0) -> None:
        self.batch_size = batch_size
        self.neighbors = neighbors
        self.generator = torch.Generator().manual_seed(seed)
        self.update(embeddings)

    def update(self, embeddings: Tensor) -> None:
        self.embeddings = torch.as_tensor(embeddings)
        if not self.embeddings.isfinite().all():  # such a row would be everyone's neighbor
            raise ValueError("the embeddings hold infinite or undefined values: training has failed")

    def __len__(self) -> int:
        return len(self.embeddings) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        yield from neighbor_batches(self.embeddings, self.batch_size, self.neighbors, self.generator).tolist()
