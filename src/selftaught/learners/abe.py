"""ABE: an ensemble of learners whose attention masks show them different things (Kim et al., ECCV 2018). Supervised."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import UsageError, printable
from selftaught.learners.learner import LabeledLearner
from selftaught.method import in_full_precision
from selftaught.networks import ENSEMBLE, LEARNERS, Encoder
from selftaught.recipes import Settings, Within

MARGIN = 1.0
"""The margin of squared distances below which pairs of two classes, and learners of one image, are pushed apart."""


@dataclass(frozen=True)
class ABESettings(Settings):
    backbone: str = "googlenet_abe"
    """"googlenet_abe", or "small_abe" to train from scratch on small images."""
    divergence: Annotated[float, Within(0)] = 1.0
    """λ, the weight of keeping learners apart."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.backbone.endswith(ENSEMBLE):
            raise UsageError(
                "the method abe needs the backbone googlenet_abe (or small_abe), which has its attention masks, not "
                f"{printable(self.backbone)}"
            )
        if self.train == "heads":
            raise UsageError("the method abe cannot train heads alone, as its attention masks are in the backbone")


@in_full_precision
def ensemble_contrastive_loss(embeddings: Tensor, classes: Tensor) -> Tensor:
    """The contrastive loss of each learner, summed over learners and averaged over pairs.

    Args:
        embeddings: n×learners×d, each of length 1.
        classes: n.

    Example:
        >>> z = torch.tensor([[[1.0, 0.0]], [[0.8, 0.6]]])
        >>> [round(float(ensemble_contrastive_loss(z, torch.tensor(c))), 4) for c in ([0, 0], [0, 1])]
        [0.4, 0.6]
    """
    by_learner = embeddings.transpose(0, 1)
    distances = 2 - 2 * by_learner @ by_learner.transpose(1, 2)
    costs = torch.where(classes[:, None] == classes, distances, F.relu(MARGIN - distances))
    n = len(classes)
    return (costs.sum(0) * (1 - torch.eye(n, device=costs.device))).sum() / (n * (n - 1))


@in_full_precision
def divergence_loss(embeddings: Tensor) -> Tensor:
    """How near the learners of an image are to one another, for n×learners×d rows of length 1: the mean over pairs.

    Example:
        >>> round(float(divergence_loss(torch.tensor([[[1.0, 0.0], [0.8, 0.6]]]))), 4)
        0.6
    """
    first, second = torch.triu_indices(embeddings.shape[1], embeddings.shape[1], 1, device=embeddings.device)
    distances = 2 - 2 * (embeddings[:, first] * embeddings[:, second]).sum(2)
    return F.relu(MARGIN - distances).mean()


class ABE(LabeledLearner):
    """Each learner has its own contrastive loss; a loss of all learners keeps them apart."""

    settings_class = ABESettings
    loss_names = ("loss", "metric", "divergence")
    """"metric": on embeddings; "divergence": of keeping the learners apart."""
    head = "ensemble"

    def __init__(self, encoder: Encoder, settings: ABESettings, classes: Tensor) -> None:
        super().__init__(encoder, settings, classes)
        self.divergence = settings.divergence
        self.network = self.make_network(encoder, settings)

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        learners = F.normalize(embeddings["f"].unflatten(1, (LEARNERS, -1)), dim=2)
        metric, divergence = ensemble_contrastive_loss(learners, self.classes[ids]), divergence_loss(learners)
        return {"loss": metric + self.divergence * divergence, "metric": metric, "divergence": divergence}
