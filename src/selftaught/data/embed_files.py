"""Image files → embeddings, through any network."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from selftaught.data.requests import ImageReader, ViewRequest

Encode = Callable[[Tensor], dict[str, Tensor]]
Advance = Callable[[int], None]


@torch.no_grad()
def embed_files(
    encode: Encode,
    reader: ImageReader,
    requests: Iterable[ViewRequest],
    count: int,
    *,
    device: torch.device,
    batch_size: int = 64,
    advance: Advance = lambda _: None,
    fill: bool = False,
) -> tuple[dict[str, Tensor], list[tuple[int, str]]]:
    """Embed the files of the requests, in order.

    Args:
        count: how many requests there are.
        encode: uint8 n×3×H×W on ``device`` → n×d per head.
        fill: make the last batch as long as the others, for a compiled network that would be compiled again for it.
        advance: called after each batch with the number of files it had; may raise to stop.

    Returns:
        Per head the embeddings of the files that could be read, (files × views)×d on ``device`` in float32, and
        (which request, why) for the rest.
    """

    def batches() -> Iterator[list[ViewRequest]]:
        rest = iter(requests)
        while batch := list(islice(rest, batch_size)):
            yield batch

    heads: dict[str, Tensor] = {}
    failures: list[tuple[int, str]] = []
    done = filled = 0
    for batch in reader.read(batches()):
        failures += [(done + position, reason) for position, reason in batch.failures]
        if batch.positions:
            images = batch.images.to(device, non_blocking=True).flatten(0, 1)
            rows = len(images)
            if fill and len(batch.positions) < batch_size:
                more = batch_size * (rows // len(batch.positions)) - rows
                images = torch.cat([images, images[-1:].expand(more, -1, -1, -1)])
            for head, embedding in encode(images).items():
                if head not in heads:  # all of it at once: the parts and their sum would take twice the memory
                    views = rows // len(batch.positions)
                    heads[head] = torch.empty(count * views, embedding.shape[1], device=device)
                heads[head][filled : filled + rows] = embedding[:rows]
            filled += rows
        size = len(batch.positions) + len(batch.failures)
        done += size
        advance(size)
    return {head: embeddings[:filled] for head, embeddings in heads.items()}, failures
