"""Views of images → embeddings, through any network, batch by batch."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from selftaught.data.requests import Batch, Failures

CPU_PIXELS = 8 * 288**2
"""Pixels of the images that a CPU embeds at once. The feature maps of more leave its caches: they take more memory and,
where freed memory is not kept, more time (docs/performance.md)."""

T = TypeVar("T")
Encode = Callable[[Tensor], dict[str, Tensor]]
Advance = Callable[[int], None]


class Embedded(NamedTuple):
    """The embeddings of one batch of files; files that cannot be read are left out of ``heads`` and named."""

    heads: dict[str, Tensor]
    """Per head (files × views)×d on the device; empty if no file of the batch can be read."""
    files: int
    """The number of files in the batch, with those that cannot be read."""
    failures: Failures
    """(position in the batch, reason) for those."""


def embed_batches(
    encode: Encode, batches: Iterable[Batch], device: torch.device, fill_to: int = 0
) -> Iterator[Embedded]:
    """Embed what a reader gives, batch by batch, in order, in constant memory: the one loop from views to vectors.

    Args:
        encode: uint8 n×3×H×W on ``device`` → n×d per head. A CPU gets few images at once.
        fill_to: give ``encode`` at least this many files at once, by repeating the last: a compiled network would be
            compiled again for a shorter batch.
    """
    for batch in batches:
        heads: dict[str, Tensor] = {}
        files = len(batch.positions)
        if files:
            images = batch.images.to(device, non_blocking=True)
            views = images.shape[1]
            images = images.flatten(0, 1)
            if files < fill_to:
                images = torch.cat([images, images[-1:].expand((fill_to - files) * views, -1, -1, -1)])
            at_once = len(images)
            if device.type == "cpu" and images.ndim == 4 and not fill_to:
                at_once = max(1, CPU_PIXELS // images[0, 0].numel())
            with torch.no_grad():
                parts = [encode(part) for part in images.split(at_once)]
            heads = {head: torch.cat([part[head] for part in parts])[: files * views] for head in parts[0]}
        yield Embedded(heads, files + len(batch.failures), batch.failures)


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of ``size``, the last one shorter.

    Example:
        >>> list(in_batches("abcde", 2))
        [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(items)
    return iter(lambda: list(islice(rest, size)), [])


def pick_evenly(total: int, most: int) -> list[int]:
    """Up to ``most`` evenly spaced positions of ``total``, the first and the last among them.

    Example:
        >>> pick_evenly(10, 4), pick_evenly(3, 4)
        ([0, 3, 6, 9], [0, 1, 2])
    """
    return [round(step) for step in np.linspace(0, total - 1, min(most, total))]


def stack_embeddings(batches: Iterable[Embedded], count: int, advance: Advance) -> tuple[dict[str, Tensor], Failures]:
    """All batches in one: per head (files × views)×d in float32 on the device, and (request, reason) for the others.

    Args:
        count: how many requests there are.
        advance: called after each batch with the number of files it had; may raise to stop.
    """
    heads: dict[str, Tensor] = {}
    failures: Failures = []
    done = filled = 0
    for batch in batches:
        rows = 0
        for head, embeddings in batch.heads.items():
            rows = len(embeddings)
            if head not in heads:  # allocated at once: joining parts would take twice the memory
                views = rows // (batch.files - len(batch.failures))
                heads[head] = torch.empty(count * views, embeddings.shape[1], device=embeddings.device)
            heads[head][filled : filled + rows] = embeddings
        failures += [(done + position, reason) for position, reason in batch.failures]
        done, filled = done + batch.files, filled + rows
        advance(batch.files)
    return {head: embeddings[:filled] for head, embeddings in heads.items()}, failures
