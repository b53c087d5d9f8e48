"""Image files → embeddings, through any network."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from selftaught.data.reader import Reader, Request

Encode = Callable[[Tensor], dict[str, Tensor]]
Advance = Callable[[int], None]


@torch.no_grad()
def embed_files(
    encode: Encode,
    reader: Reader,
    requests: Sequence[Request],
    *,
    device: torch.device,
    batch_size: int = 64,
    advance: Advance = lambda _: None,
) -> tuple[dict[str, Tensor], list[tuple[int, str]]]:
    """Embed the files of the requests, in order.

    Args:
        encode: uint8 n×3×H×W on ``device`` → n×d per head.
        advance: called after each batch with the number of files it had; may raise to stop.

    Returns:
        Per head the embeddings of the files that could be read, (files × views)×d on ``device`` in float32, and
        (which request, why) for the rest.
    """

    def batches() -> Iterator[list[Request]]:
        for start in range(0, len(requests), batch_size):
            yield list(requests[start : start + batch_size])

    parts: dict[str, list[Tensor]] = {}
    failures: list[tuple[int, str]] = []
    done = 0
    for batch in reader.read(batches()):
        failures += [(done + position, reason) for position, reason in batch.failures]
        if batch.positions:
            images = batch.images.to(device, non_blocking=True).flatten(0, 1)
            for head, embedding in encode(images).items():
                parts.setdefault(head, []).append(embedding.float())
        size = len(batch.positions) + len(batch.failures)
        done += size
        advance(size)
    return {head: torch.cat(embeddings) for head, embeddings in parts.items()}, failures
