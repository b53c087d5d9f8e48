"""Image files → embeddings, through any network, batch by batch."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from selftaught.data.requests import ImageReader, ViewRequest

T = TypeVar("T")
Encode = Callable[[Tensor], dict[str, Tensor]]
Advance = Callable[[int], None]


class Embedded(NamedTuple):
    """The embeddings of one batch of files; files that cannot be read are left out of ``heads`` and named."""

    heads: dict[str, Tensor]
    """Per head (files × views)×d on the device; empty if no file of the batch can be read."""
    positions: list[int]
    """The requests, of all batches, that the rows answer; ``views`` rows each."""
    failures: list[tuple[int, str]]
    """(request, reason) for the others."""


def embed_files(
    encode: Encode,
    reader: ImageReader,
    batches: Iterable[list[ViewRequest]],
    *,
    device: torch.device,
    fill_to: int = 0,
) -> Iterator[Embedded]:
    """Embed files batch by batch, in order, in constant memory.

    Args:
        encode: uint8 n×3×H×W on ``device`` → n×d per head.
        batches: read as they are needed; :func:`in_batches` makes them from single requests.
        fill_to: give ``encode`` at least this many files at once, by repeating the last: a compiled network would be
            compiled again for a shorter batch.
    """
    done = 0
    for batch in reader.read(batches):
        heads: dict[str, Tensor] = {}
        if batch.positions:
            images = batch.images.to(device, non_blocking=True)
            files, views = images.shape[:2]
            images = images.flatten(0, 1)
            if files < fill_to:
                images = torch.cat([images, images[-1:].expand((fill_to - files) * views, -1, -1, -1)])
            with torch.no_grad():
                heads = {head: rows[: files * views] for head, rows in encode(images).items()}
        yield Embedded(
            heads,
            [done + position for position in batch.positions],
            [(done + position, reason) for position, reason in batch.failures],
        )
        done += len(batch.positions) + len(batch.failures)


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of ``size``, the last one shorter.

    Example:
        >>> list(in_batches("abcde", 2))
        [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(items)
    return iter(lambda: list(islice(rest, size)), [])


def stack_embeddings(
    batches: Iterable[Embedded], count: int, advance: Advance
) -> tuple[dict[str, Tensor], list[tuple[int, str]]]:
    """All batches in one: per head (files × views)×d in float32 on the device, and (request, reason) for the others.

    Args:
        count: how many requests there are.
        advance: called after each batch with the number of files it had; may raise to stop.
    """
    heads: dict[str, Tensor] = {}
    failures: list[tuple[int, str]] = []
    filled = 0
    for batch in batches:
        rows = 0
        for head, embeddings in batch.heads.items():
            rows = len(embeddings)
            if head not in heads:  # allocated at once: joining parts would take twice the memory
                views = rows // len(batch.positions)
                heads[head] = torch.empty(count * views, embeddings.shape[1], device=embeddings.device)
            heads[head][filled : filled + rows] = embeddings
        filled += rows
        failures += batch.failures
        advance(len(batch.positions) + len(batch.failures))
    return {head: embeddings[:filled] for head, embeddings in heads.items()}, failures
