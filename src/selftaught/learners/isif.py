"""ISIF: an embedding invariant to views and spreading over images (Ye et al., CVPR 2019)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from selftaught.errors import UsageError
from selftaught.learners.learner import Learner
from selftaught.method import in_full_precision, parallel_search
from selftaught.networks import Encoder
from selftaught.recipes import Settings

TEMPERATURE = 0.1
NEIGHBOR_SHARE = 0.5
"""The share of images that have a neighbor as partner, if neighbors can be partners."""


@dataclass(frozen=True)
class ISIFSettings(Settings):
    partner: Literal["view", "neighbor"] = "view"
    """What an image is pulled to: its own other view; or, as in the authors' code for CUB, half of the time the image
    nearest to it by the pooled features, drawn again in every epoch."""


@in_full_precision
def instance_softmax_loss(first: Tensor, second: Tensor) -> Tensor:
    """The loss of a softmax whose classes are the images of a batch, with the first view's embedding f_i as weight.

    -log P(i | second view of i) - Σ_{j≠i} log(1 - P(i | first view of j)), averaged over i, where P(i | z) is the
    softmax of f_i·z over the temperature.

    Args:
        first, second: n×d of length 1, two views of n images.

    Example:
        >>> z = torch.eye(4)
        >>> bool(instance_softmax_loss(z, z) < instance_softmax_loss(z, z.roll(1, 0)))
        True
    """
    positives = (second @ first.T / TEMPERATURE).log_softmax(1).diagonal()
    # Row j: P(i | j). A row is nearest to itself, so no other probability is above one half.
    others = (first @ first.T / TEMPERATURE).softmax(1)
    spread = torch.log1p(-others.masked_fill(torch.eye(len(first), dtype=torch.bool, device=first.device), 0))
    return -(positives.sum() + spread.sum()) / len(first)


def partner_batches(features: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """One epoch of random images, each followed by its partner: half of the time the nearest other one, or else itself.

    Args:
        features: n×d of length 1, one row per training image.
        batch_size: images in a batch, an even number.
        generator: a CPU generator; its state alone decides the draw.

    Returns:
        steps×batch_size image indices, steps = n // batch_size.
    """
    images = torch.randperm(len(features), generator=generator)[: len(features) // batch_size * batch_size // 2]
    asked = images.to(features.device)
    _, near = parallel_search(features[asked], features, 1, exclude=asked)
    drawn = torch.rand(len(images), generator=generator) < NEIGHBOR_SHARE
    return torch.stack([images, torch.where(drawn, near[:, 0].cpu(), images)], 1).view(-1, batch_size)


class ISIF(Learner):
    """The softmax embedding, on random batches, with either view in either part.

    With neighbors as partners a batch holds pairs of an image and its partner. The loss compares the first views of
    the images with the second views of the partners, and the other views in the same way.
    """

    settings_class = ISIFSettings

    def __init__(self, encoder: Encoder, settings: ISIFSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        others = {}
        self.partners = settings.partner == "neighbor"
        if self.partners:
            if self.batch_size % 2:
                raise UsageError(f"partner=neighbor needs an even batch_size, but it is {self.batch_size}")
            self.batch_head, others["pooled"] = "pooled", nn.Identity()
        self.network = self.make_network(encoder, settings, **others)

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        if self.partners:
            return partner_batches(embeddings, self.batch_size, generator)
        return super().batches(embeddings, generator)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"f": self.network(images)["f"]}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        first, second = embeddings["f"].chunk(2)
        pairs = [(first[::2], second[1::2]), (second[::2], first[1::2])] if self.partners else [(first, second)]
        losses = [instance_softmax_loss(*views) for one, other in pairs for views in ((one, other), (other, one))]
        return {"loss": torch.stack(losses).mean()}
