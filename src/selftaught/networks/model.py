"""Backbone, pooling and heads."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from selftaught.errors import UsageError, raise_if_out_of_memory
from selftaught.networks.attention_ensemble import LEARNERS
from selftaught.networks.preprocessing import Preprocessing
from selftaught.retrieval import full_precision

Pooling = Literal["avg", "avg+max", "gem"]
GEM_POWER, GEM_LEAST = 3, 1e-6
"""The power of the generalized mean: 1 would be the average, infinity the maximum. And what is taken for 0 in it."""


class Encoder(nn.Module):
    """uint8 RGB images → pooled features: global average, average plus maximum, or generalized mean of the feature map.

    A backbone that gives vectors already is used as it is. With ``freeze_batch_norm``, batch-norm layers
    stay in eval mode and their scale and shift do not learn.
    """

    def __init__(
        self,
        backbone: nn.Module,
        preprocessing: Preprocessing,
        freeze_batch_norm: bool = False,
        pooling: Pooling = "avg+max",
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, but is {pooling!r}")
        self.pooling = pooling
        self.backbone = backbone.to(memory_format=torch.channels_last)
        self.preprocessing = preprocessing
        self.freeze_batch_norm = freeze_batch_norm
        if freeze_batch_norm:
            for layer in self._batch_norms():
                layer.requires_grad_(False)
        self.features = self._probe()

    def forward(self, images: Tensor) -> Tensor:
        """uint8 n×3×H×W → n×features. Inputs n×features are returned unchanged."""
        if images.ndim == 2:
            return full_precision(images)
        return pool(self.feature_map(images), self.pooling)

    def feature_map(self, images: Tensor) -> Tensor:
        """uint8 n×3×H×W → the output of the backbone, before pooling."""
        x = self.preprocessing(images).contiguous(memory_format=torch.channels_last)  # faster on CPU and GPU
        return full_precision(self.backbone(x))

    def pooled_by(self, pooling: Pooling) -> "Encoder":
        """The same backbone, weights included, with another pooling."""
        other = copy.copy(self)
        other.pooling = pooling
        return other

    def train(self, mode: bool = True) -> "Encoder":
        super().train(mode)
        if self.freeze_batch_norm:
            for layer in self._batch_norms():
                layer.eval()
        return self

    def _batch_norms(self) -> list[nn.Module]:
        return [module for module in self.backbone.modules() if isinstance(module, _BatchNorm)]

    @torch.no_grad()
    def _probe(self) -> int:
        size = self.preprocessing.size
        training = self.training
        self.eval()
        device = next((p.device for p in self.backbone.parameters()), torch.device("cpu"))
        try:
            pooled = self(torch.zeros(1, 3, size, size, dtype=torch.uint8, device=device))
        except (RuntimeError, TypeError, IndexError, AttributeError) as error:
            raise_if_out_of_memory(error)
            raise ValueError(
                f"the backbone {type(self.backbone).__name__} does not map 1×3×{size}×{size} images to a feature map "
                f"(n×C×H×W) or a vector (n×C): {error}"
            ) from error
        self.train(training)
        if pooled.ndim != 2:
            raise ValueError(f"the backbone gives features of {pooled.ndim} dimensions after pooling; two are needed")
        return int(pooled.shape[1])


def pool(x: Tensor, pooling: Pooling) -> Tensor:
    """n×C×H×W → n×C; vectors n×C are returned unchanged."""
    if x.ndim == 2:
        return x
    if pooling == "gem":
        return x.clamp_min(GEM_LEAST).pow(GEM_POWER).mean((2, 3)).pow(1 / GEM_POWER)
    return x.mean((2, 3)) if pooling == "avg" else x.mean((2, 3)) + x.amax((2, 3))


class EmbeddingNetwork(nn.Module):
    """An encoder with heads side by side: student = f and g, teacher = g, finished model = f.

    With ``normalize`` the embeddings have length 1, as most methods except STML need.
    """

    def __init__(self, encoder: Encoder, heads: Mapping[str, nn.Module], normalize: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(heads)
        self.normalize = normalize

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """uint8 RGB n×3×H×W → one n×d embedding per head."""
        features = self.encoder(images)
        # Embeddings of similar images differ little: if autocast rounded them to bfloat16, noise would hide that.
        with torch.autocast(features.device.type, enabled=False):
            embeddings = {name: head(features) for name, head in self.heads.items()}
            return {name: F.normalize(z) for name, z in embeddings.items()} if self.normalize else embeddings


def linear_head(features: int, dim: int) -> nn.Linear:
    """A head with orthogonal weights and zero bias."""
    head = nn.Linear(features, dim)
    nn.init.orthogonal_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def mlp_head(features: int, dim: int) -> nn.Sequential:
    """A head of two layers, as in MoCo."""
    return nn.Sequential(linear_head(features, features), nn.ReLU(), linear_head(features, dim))


def projector_head(features: int, dim: int) -> nn.Sequential:
    """A head of two layers with batch norm between them, as in BYOL and mean shift."""
    return batch_norm_mlp(features, 2 * features, dim)


def batch_norm_mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two linear layers, with batch norm and ReLU between. The first needs no bias: batch norm would remove it."""
    first = nn.Linear(inputs, hidden, bias=False)
    nn.init.orthogonal_(first.weight)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.ReLU(), linear_head(hidden, outputs))


class NormalizedParts(nn.Module):
    """Normalizes each part of a vector to the length of its share in the whole."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = list(sizes)

    def forward(self, rows: Tensor) -> Tensor:
        parts = rows.split(self.sizes, 1)
        return torch.cat([F.normalize(part) * (part.shape[1] / rows.shape[1]) for part in parts], 1)


def part_sizes(dim: int) -> tuple[int, ...]:
    """The sizes of the three parts of a boosted head: 3, 5 and 8 sixteenths.

    Example:
        >>> part_sizes(512)
        (96, 160, 256)
    """
    first, second = round(dim * 3 / 16), round(dim * 8 / 16)
    if first < 1 or second <= first:
        raise UsageError(f"dim {dim} cannot be split into three parts: give at least 3")
    return first, second - first, dim - second


def boosted_head(features: int, dim: int) -> nn.Sequential:
    """A linear head in three parts of different lengths, as in ABIER: larger ones count more."""
    return nn.Sequential(linear_head(features, dim), NormalizedParts(part_sizes(dim)))


class SharedLayer(nn.Module):
    """A layer that all learners of an ensemble share, as in ABE: a cosine is the mean of the learners' cosines."""

    def __init__(self, features: int, dim: int) -> None:
        super().__init__()
        for name, size in (("features", features), ("dim", dim)):
            if size % LEARNERS:
                raise UsageError(
                    f"{name} {size} cannot be shared by {LEARNERS} learners: give a multiple of {LEARNERS}"
                )
        self.layer = linear_head(features // LEARNERS, dim // LEARNERS)

    def forward(self, rows: Tensor) -> Tensor:
        return F.normalize(self.layer(rows.unflatten(1, (LEARNERS, -1))), dim=2).flatten(1)


def no_head(features: int, dim: int) -> nn.Identity:
    """The pooled features themselves."""
    if features != dim:
        raise ValueError(f"{features} features are no {dim} dimensions")
    return nn.Identity()


HEADS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": linear_head,
    "mlp": mlp_head,
    "projector": projector_head,
    "boosted": boosted_head,
    "ensemble": SharedLayer,
    "none": no_head,
}
"""Kinds of heads by name, so that a saved model can be built again."""


def parameter_groups(network: EmbeddingNetwork, lr: float, head_lr: float) -> list[dict[str, Any]]:
    """The two groups of the optimizer: backbone, heads."""
    backbone = [p for p in network.encoder.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": list(network.heads.parameters()), "lr": head_lr}]
    return [{"params": backbone, "lr": lr}, *groups] if backbone else groups
