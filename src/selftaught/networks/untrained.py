"""How a network is used without training, and how training with the recipe `best` begins: its pooling, and its size."""

from dataclasses import replace

from selftaught.networks.backbones import Backbone
from selftaught.networks.model import Encoder, Pooling
from selftaught.networks.preprocessing import Preprocessing

GENERALIZED = "tf_efficientnet_lite"
"""The networks whose maps are pooled by the generalized mean, which found as much or more on all collections that were
tried. With a ResNet50, the authors' average plus maximum was the safer one (docs/best.md)."""
USE_SCALE = 9 / 7
"""The size at use in units of the crop that a network was trained with: random crops make things look larger."""


def suited_pooling(name: str) -> tuple[Pooling, str]:
    """The pooling that suits a backbone, and why.

    Example:
        >>> suited_pooling("tf_efficientnet_lite0")
        ('gem', 'what was found best for EfficientNet-Lite')
    """
    if name.startswith(GENERALIZED):
        return "gem", "what was found best for EfficientNet-Lite"
    return "avg+max", "as in the authors' code"


def suited_size(inputs: Preprocessing, scale: float = USE_SCALE) -> int:
    """The size in pixels at which a network is used: its own if it takes no other.

    Example:
        >>> suited_size(Preprocessing(size=224))
        288
    """
    if scale == 1 or inputs.fixed_size or inputs.multiple > 1:
        return inputs.use_size  # a vision transformer's positions are those of the size that it was made for
    return round(scale * inputs.size)


def untrained_encoder(backbone: Backbone) -> Encoder:
    """A backbone with the pooling and the size that suit it."""
    inputs = replace(backbone.preprocessing, use_size=suited_size(backbone.preprocessing))
    return Encoder(backbone.module, inputs, pooling=suited_pooling(backbone.name)[0])
