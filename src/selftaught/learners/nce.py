"""NCE: every image is a class of its own, represented in a memory bank (Wu et al., CVPR 2018)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners.learner import Learner
from selftaught.method import in_full_precision
from selftaught.networks import Encoder
from selftaught.recipes import Settings

TEMPERATURE = 0.07
NOISE = 4096
"""The number of images drawn as noise in a step, one draw for all rows; at most all images."""
MEMORY_MOMENTUM = 0.5


@in_full_precision
def nce_scores(embeddings: Tensor, memory: Tensor, ids: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines divided by the temperature: with a row's own slot of the memory, n, and with the noise's slots, n×m."""
    own = (embeddings * memory[ids]).sum(1)
    return own / TEMPERATURE, embeddings @ memory[noise].T / TEMPERATURE


@in_full_precision
def nce_loss(own: Tensor, noise: Tensor, constant: Tensor, images: int) -> Tensor:
    """Noise-contrastive estimation of "which image is this?", with uniform noise.

    The probability that a slot with score s is the row's own and not noise is P / (P + m/images), with
    P = exp(s) / constant.

    Args:
        own: n scores with the own slot.
        noise: n×m scores with the slots of the noise.
        constant: Z, a scalar.
        images: how many slots there are.

    Example:
        >>> own, noise = torch.tensor([5.0]), torch.zeros(1, 3)
        >>> bool(nce_loss(own, noise, torch.tensor(9.0), 9) < nce_loss(-own, noise, torch.tensor(9.0), 9))
        True
    """
    shift = constant.log() + math.log(noise.shape[1] / images)
    return (F.softplus(shift - own) + F.softplus(noise - shift).sum(1)).mean()


class NCE(Learner):
    """Each row must recognize its image's slot among noise, in a memory of the embeddings of all images.

    The memory starts as the embeddings before training. (The published start is random. But embeddings share a common
    direction that random vectors lack, so Z, which is estimated on the first batch and then fixed, would be far too
    small.) After each step, the slots of its images move halfway to the mean of their two views.
    """

    def __init__(self, encoder: Encoder, settings: Settings, images: int) -> None:
        super().__init__(encoder, settings, images)
        self.noise = max(1, min(NOISE, images - 1))
        self.network = self.make_network(encoder, settings)
        self.memory = nn.Buffer(torch.zeros(images, settings.dim))
        self.constant = nn.Buffer(torch.zeros(()))
        """Z; 0 before it is known."""
        self._seen: tuple[Tensor, Tensor] | None = None

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        if not bool(self.constant):  # nothing was learned yet
            self.memory.copy_(embeddings)
        return super().batches(embeddings, generator)

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        drawn = torch.randint(len(self.memory), (self.noise,), device=ids.device)
        own, noise = nce_scores(embeddings["f"], self.memory, ids, drawn)
        estimate = torch.cat([own.detach()[:, None], noise.detach()], dim=1).exp().mean() * len(self.memory)
        constant = torch.where(self.constant == 0, estimate, self.constant)
        self.constant.copy_(constant)
        self._seen = ids, embeddings["f"].detach()
        return {"loss": nce_loss(own, noise, constant, len(self.memory))}

    @torch.no_grad()
    def after_step(self) -> None:
        if self._seen is None:
            return
        ids, embeddings = self._seen
        own = ids[: len(ids) // 2]
        means = torch.stack(embeddings.chunk(2)).mean(0)
        moved = torch.lerp(means.to(self.memory), self.memory[own], MEMORY_MOMENTUM)
        self.memory.index_copy_(0, own, F.normalize(moved))
        self._seen = None
