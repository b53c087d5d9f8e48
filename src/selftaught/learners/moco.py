"""MoCo: tell the other view of an image from a queue of other images (He et al., CVPR 2020)."""

import torch
from torch import Tensor

from selftaught.learners.learner import Learner
from selftaught.learners.queue import QueueSettings, make_queue
from selftaught.learners.target import Target
from selftaught.method import in_full_precision, random_batches
from selftaught.networks import EmbeddingNetwork, Encoder, mlp_head

TEMPERATURE = 0.07


@in_full_precision
def info_nce(queries: Tensor, keys: Tensor, negatives: Tensor) -> Tensor:
    """Cross-entropy of picking a query's own key among all others.

    Args:
        queries: n×d of length 1.
        keys: n×d of length 1, the other view of each.
        negatives: n×m dot products of the queries with the keys of other images; -inf does not count.

    Example:
        >>> import torch
        >>> q = torch.eye(2)
        >>> bool(info_nce(q, q, torch.zeros(2, 5)) < info_nce(q, q, torch.ones(2, 5)))
        True
    """
    own = (queries * keys).sum(1, keepdim=True)
    scores = torch.cat([own, negatives], dim=1) / TEMPERATURE
    return (scores.logsumexp(1) - scores[:, 0]).mean()


class MoCo(Learner):
    """First views are queries; second views, seen by the key encoder, are their keys and later negatives of others.

    The queue starts empty and takes in a step's keys after its loss, so the first step has no negatives and teaches
    nothing. A queue longer than the data set also holds older keys of the query's own image, as it does with the
    paper's 9600 keys on CUB and Cars.
    """

    settings_class = QueueSettings
    head = "mlp"

    def __init__(self, encoder: Encoder, settings: QueueSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        self.network = EmbeddingNetwork(encoder, {"f": mlp_head(encoder.features, settings.dim)}, normalize=True)
        self.target = Target(self.network, settings.momentum)
        self.queue = make_queue(settings)
        self._keys: Tensor | None = None

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        return random_batches(len(embeddings), self.batch_size, generator)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        first, second = images.chunk(2)
        return {"queries": self.network(first)["f"], "keys": self.target(second)}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        queries, self._keys = embeddings["queries"], embeddings["keys"]
        with torch.autocast(ids.device.type, enabled=False):
            negatives = self.queue.similarities(queries)
        return {"loss": info_nce(queries, self._keys, negatives)}

    def after_step(self) -> None:
        # Not in loss(): backward needs the unchanged queue.
        if self._keys is not None:
            self.queue.put(self._keys)
        self._keys = None
        self.target.follow(self.network)
