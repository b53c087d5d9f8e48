"""The vectors of the finished model: those of the head f, or of the widest head, whitened."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners import Learner
from selftaught.networks import WHITENED_FROM, whitened_layer
from selftaught.recipes import Settings

Heads = Mapping[str, Tensor]
Readout = Callable[[Heads], Tensor]


def whitened_head(learner: Learner, settings: Settings, images: int) -> str | None:
    """The head to whiten for the finished model: g if there is one, as it keeps most of the features; None for none."""
    network = learner.network
    wide = "g" if "g" in network.heads else "f"
    plain = isinstance(network.heads[wide], nn.Linear) and not network.normalize
    return wide if settings.deliver == "whitened" and plain and images >= WHITENED_FROM else None


def fit_readout(learner: Learner, settings: Settings, training: Heads, exponent: float) -> Readout:
    """The function from the embeddings of all heads to the vectors of the finished model.

    Args:
        training: each head's embeddings of training images, to fit on.
        exponent: how much to whiten.
    """
    wide = whitened_head(learner, settings, len(training["f"]))
    if wide is None:
        return lambda heads: heads["f"]
    layer = whitened_layer(training[wide], settings.dim, exponent)
    return lambda heads: F.normalize(layer(heads[wide]))
