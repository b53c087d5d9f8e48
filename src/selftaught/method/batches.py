"""Step 1: batches of queries, each with its nearest neighbors in the student's embedding space."""

from collections.abc import Iterator

import torch
from torch import Tensor

from selftaught.retrieval import nearest


def neighbor_batches(embeddings: Tensor, batch_size: int, neighbors: int, generator: torch.Generator) -> Tensor:
    """One epoch of nearest-neighbor batches.

    Queries are drawn without replacement; each comes with its ``neighbors - 1`` nearest images, so an
    image may come twice in a batch. Only the neighbors of the drawn queries are searched for.

    Args:
        embeddings: n×d, one row per training image.
        batch_size: images in a batch, a multiple of ``neighbors``.
        neighbors: images per query, the query itself included.
        generator: a CPU generator; its state alone decides the draw.

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
        drawn = queries.to(embeddings.device)
        _, near = nearest(embeddings[drawn], embeddings, neighbors - 1, exclude=drawn)
        rows = torch.cat([rows, near.cpu()], dim=1)
    return rows.reshape(steps, batch_size)


def random_batches(n: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """One epoch of random batches, each image at most once: the paper's ablation of step 1."""
    return torch.randperm(n, generator=generator)[: n // batch_size * batch_size].reshape(-1, batch_size)


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

    def __len__(self) -> int:
        return len(self.embeddings) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        yield from neighbor_batches(self.embeddings, self.batch_size, self.neighbors, self.generator).tolist()
