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

_HOMES = {
    "selftaught.embedder": ("Embedder",),
    "selftaught.method": (
        "STMLLoss",
        "contextual_similarity",
        "contextualized_similarity",
        "distillation_loss",
        "pairwise_similarity",
        "relaxed_contrastive_loss",
    ),
    "selftaught.retrieval": ("map_at_r", "r_precision", "recall_at_k"),
    "selftaught.training": ("train",),
}


def __getattr__(name: str) -> object:
    # Imported when first used: torch and the like take seconds, and `selftaught --help` does not need them.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
