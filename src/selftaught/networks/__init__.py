"""Networks from images to embeddings, each with its preprocessing."""

from selftaught.networks.backbones import Backbone, build_backbone, is_backbone
from selftaught.networks.model import EmbeddingNetwork, Encoder, linear_head, parameter_groups
from selftaught.networks.preprocessing import Preprocessing
from selftaught.networks.whitening import fit_whitening

__all__ = [
    "Backbone",
    "EmbeddingNetwork",
    "Encoder",
    "Preprocessing",
    "build_backbone",
    "fit_whitening",
    "is_backbone",
    "linear_head",
    "parameter_groups",
]
