"""From a folder of unlabeled images to an embedding model: self-taught metric learning without labels."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selftaught.embedder import Embedder
    from selftaught.method import (
        STMLLoss,
        contextual_similarity,
        contextualized_similarity,
        distillation_loss,
        pairwise_similarity,
        relaxed_contrastive_loss,
    )
    from selftaught.retrieval import map_at_r, r_precision, recall_at_k
    from selftaught.training.train import train

__version__ = "0.2.0"

__all__ = [
    "Embedder",
    "STMLLoss",
    "contextual_similarity",
    "contextualized_similarity",
    "distillation_loss",
    "map_at_r",
    "pairwise_similarity",
    "r_precision",
    "recall_at_k",
    "relaxed_contrastive_loss",
    "train",
]

_ROOMS = ("retrieval", "method", "embedder", "training")
"""The rooms that hold these names, each with all that it needs before it."""


def __getattr__(name: str) -> object:
    # Imported when first used: torch and the like take seconds, and `selftaught --help` does not need them.
    for room in _ROOMS if name in __all__ else ():
        found = vars(import_module(f"{__name__}.{room}"))
        if name in found:
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
