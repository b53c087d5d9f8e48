"""Methods of learning embeddings, behind one small interface."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from selftaught.errors import UsageError
from selftaught.learners.deepcluster import DeepCluster
from selftaught.learners.isif import ISIF
from selftaught.learners.learner import Learner
from selftaught.learners.mean_shift import MeanShift
from selftaught.learners.moco import MoCo
from selftaught.learners.nce import NCE
from selftaught.learners.slade import Slade
from selftaught.learners.stml import STML
from selftaught.learners.supervised import Supervised
from selftaught.learners.udml_ss import UDMLSS
from selftaught.networks import Encoder
from selftaught.parallel import world
from selftaught.recipes import Settings

__all__ = ["METHODS", "STML", "Learner", "MethodInfo", "build_learner"]


@dataclass(frozen=True)
class MethodInfo:
    """What there is to know of a method beside its code."""

    title: str
    learner: Callable[..., Learner]
    """Called with encoder, settings, and the number of images, or their classes if it is labeled."""
    labeled: bool = False
    """Learns from labels."""
    clusters: bool = False
    """Labels images by k-means, into ``settings.clusters``."""
    packages: bool = False
    """Needs ``selftaught[research]``."""


METHODS = {
    "stml": MethodInfo("STML", STML),
    "moco": MethodInfo("MoCo", MoCo),
    "byol": MethodInfo("BYOL", MeanShift),
    "msf": MethodInfo("MSF", MeanShift),
    "nce": MethodInfo("NCE", NCE),
    "isif": MethodInfo("ISIF", ISIF),
    "deepcluster": MethodInfo("DeepCluster", DeepCluster, clusters=True),
    "udml-ss": MethodInfo("UDML-SS", UDMLSS, clusters=True, packages=True),
    "contrastive": MethodInfo("Contrastive", Supervised, labeled=True, packages=True),
    "multi-similarity": MethodInfo("Multi-Similarity", Supervised, labeled=True, packages=True),
    "proxy-anchor": MethodInfo("Proxy-Anchor", Supervised, labeled=True, packages=True),
    "slade": MethodInfo("SLADE", Slade, labeled=True, clusters=True, packages=True),
}


def build_learner(encoder: Encoder, settings: Settings, images: int, classes: Tensor | None = None) -> Learner:
    """The learner of ``settings.method`` for so many images; ``classes`` are theirs, for methods with labels."""
    assert settings.batch_size is not None
    if settings.batch_size < world():
        raise UsageError(
            f"a batch of {settings.batch_size} images cannot be shared by {world()} processes: "
            "give a larger --batch-size, or start fewer"
        )
    method = METHODS[settings.method]
    return method.learner(encoder, settings, classes if method.labeled else images)
