"""The end of a stage: from a trained learner to a finished model."""

from dataclasses import asdict

from selftaught.embedder import Embedder, describe
from selftaught.networks import EmbeddingNetwork
from selftaught.parallel import rank
from selftaught.training.assemble import Parts


def save_model(parts: Parts, finished: bool = True) -> Embedder:
    """The model that a stage has learned, which is also written into its folder."""
    record, network = parts.record, parts.learner.network
    assert record.backbone is not None
    description = describe(
        backbone=record.backbone,
        own_backbone=record.own_backbone is not None,
        preprocessing=network.encoder.preprocessing,
        dim=parts.settings.dim,
        head=parts.learner.head,
        pooling=network.encoder.pooling,
        metric="cosine" if network.normalize else "euclidean",
        settings=asdict(parts.settings),
    )
    if not finished:
        description["finished"] = False
    served = EmbeddingNetwork(network.encoder, {"f": network.heads["f"]}, network.normalize)
    embedder = Embedder(served, description)
    if rank() == 0:
        embedder.save(parts.folder)
    return embedder
