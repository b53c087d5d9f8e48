"""MoCo: tell the other view of an image from a queue of other images (He et al., CVPR 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from selftaught.learners.learner import Learner
from selftaught.learners.target import QueueSettings, Target, make_queue
from selftaught.method import in_full_precision
from selftaught.networks import Encoder
from selftaught.recipes import Positive


@dataclass(frozen=True)
class MoCoSettings(QueueSettings):
    temperature: Positive = 0.07
    """What similarities are divided by: 0.07 in the first version of MoCo and in the comparison of STML's authors, 0.2
    in the second."""


@in_full_precision
def info_nce(queries: Tensor, keys: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of picking a query's own key among all others.

    Args:
        queries: n×d of length 1.
        keys: n×d of length 1, the other view of each.
        negatives: n×m dot products of the queries with the keys of other images; -inf does not count.

    Example:
        >>> q = torch.eye(2)
        >>> info_nce(q, q, torch.zeros(2, 1), temperature=1.0)
        tensor(0.3133)
    """
    own = (queries * keys).sum(1, keepdim=True)
    scores = torch.cat([own, negatives], dim=1) / temperature
    return (scores.logsumexp(1) - scores[:, 0]).mean()


class MoCo(Learner):
    """First views are queries; second views, seen by the key encoder, are their keys and later negatives of others.

    The queue starts empty and takes in a step's keys after its loss, so the first step has no negatives and teaches
    nothing. A queue longer than the data set also holds older keys of the query's own image, as it does with the
    paper's 9600 keys on CUB and Cars.
    """

    settings_class = MoCoSettings
    head = "mlp"

    def __init__(self, encoder: Encoder, settings: MoCoSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        self.network = self.make_network(encoder, settings)
        self.target = Target(self.network, settings.momentum)
        self.queue, self.temperature = make_queue(settings), settings.temperature
        self._keys: Tensor | None = None

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        first, second = images.chunk(2)
        return {"queries": self.network(first)["f"], "keys": self.target(second)}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        queries, self._keys = embeddings["queries"], embeddings["keys"]
        with torch.autocast(ids.device.type, enabled=False):
            negatives = self.queue.similarities(queries)
        return {"loss": info_nce(queries, self._keys, negatives, self.temperature)}

    def after_step(self) -> None:
        # Not in loss(): backward needs the unchanged queue.
        if self._keys is not None:
            self.queue.put(self._keys)
        self._keys = None
        self.target.follow(self.network)
