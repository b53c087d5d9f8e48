"""Which vectors of a trained network are the finished model's: the head f as it is, or the widest one whitened."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners import Learner
from selftaught.networks import whitened_layer
from selftaught.recipes import Settings

ENOUGH = 30
"""Images from which on whitening is worth its noise."""

Heads = Mapping[str, Tensor]
Readout = Callable[[Heads], Tensor]


def whitened_head(learner: Learner, settings: Settings, images: int) -> str | None:
    """The head that the finished model is whitened from: g, which has kept most of the features; None if it is not."""
    network = learner.network
    wide = "g" if "g" in network.heads else "f"
    plain = isinstance(network.heads[wide], nn.Linear) and not network.normalize
    return wide if settings.deliver == "whitened" and plain and images >= ENOUGH else None


def fit_readout(learner: Learner, settings: Settings, training: Heads) -> Readout:
    """What a finished model would give, as a function of the embeddings of all heads.

    Args:
        training: each head's embeddings of training images, to fit on.
    """
    wide = whitened_head(learner, settings, len(training["f"]))
    if wide is None:
        return lambda heads: heads["f"]
    layer = whitened_layer(training[wide], settings.dim)
    return lambda heads: F.normalize(layer(heads[wide]))
