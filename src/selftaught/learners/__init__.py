"""Methods of learning embeddings, behind one small interface."""

from importlib import import_module

from torch import Tensor

from selftaught.learners.learner import Learner
from selftaught.learners.stml import STML
from selftaught.networks import Encoder
from selftaught.recipes import Settings

__all__ = ["LABELED", "STML", "Learner", "build_learner"]

LABELED = ("contrastive", "multi-similarity", "proxy-anchor", "slade")
"""The methods that learn from labels."""

_HOMES = {
    "stml": "stml.STML",
    "moco": "moco.MoCo",
    "byol": "mean_shift.MeanShift",
    "msf": "mean_shift.MeanShift",
    "nce": "nce.NCE",
    "isif": "isif.ISIF",
    "deepcluster": "deepcluster.DeepCluster",
    "udml-ss": "udml_ss.UDMLSS",
    "contrastive": "supervised.Supervised",
    "multi-similarity": "supervised.Supervised",
    "proxy-anchor": "supervised.Supervised",
    "slade": "slade.Slade",
}


def build_learner(encoder: Encoder, settings: Settings, images: int, classes: Tensor | None = None) -> Learner:
    """The learner of ``settings.method`` for so many images; ``classes`` are theirs, for methods with labels."""
    module, name = _HOMES[settings.method].split(".")
    kind = getattr(import_module(f"selftaught.learners.{module}"), name)
    learner: Learner = kind(encoder, settings, classes if settings.method in LABELED else images)
    return learner
