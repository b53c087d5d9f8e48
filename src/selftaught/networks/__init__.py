"""Networks from images to embeddings, each with its preprocessing."""

from selftaught.networks.attention_ensemble import ENSEMBLE, LEARNERS
from selftaught.networks.backbones import (
    PUBLISHED,
    Backbone,
    build_backbone,
    is_backbone,
    near_backbones,
    weights_at_hand,
    weights_on_disk,
)
from selftaught.networks.batch_norm import with_global_batch_norm
from selftaught.networks.factory import is_factory
from selftaught.networks.model import (
    HEADS,
    EmbeddingNetwork,
    Encoder,
    Pooling,
    batch_norm_mlp,
    boosted_head,
    ensemble_head,
    linear_head,
    mlp_head,
    parameter_groups,
    part_sizes,
    pool,
    projector_head,
)
from selftaught.networks.preprocessing import LARGEST_SIZE, Preprocessing
from selftaught.networks.timm_form import TimmForm, own_names, timm_form
from selftaught.networks.weights import OFFLINE_BACKBONE, hub_reachable, offline_weights
from selftaught.networks.whitening import (
    HALF,
    WHITENED_ON,
    choose_exponent,
    count_photos_per_thing,
    fit_whitening,
    whitened_layer,
)

__all__ = [
    "ENSEMBLE",
    "HALF",
    "HEADS",
    "LARGEST_SIZE",
    "LEARNERS",
    "OFFLINE_BACKBONE",
    "PUBLISHED",
    "WHITENED_ON",
    "Backbone",
    "EmbeddingNetwork",
    "Encoder",
    "Pooling",
    "Preprocessing",
    "TimmForm",
    "batch_norm_mlp",
    "boosted_head",
    "build_backbone",
    "choose_exponent",
    "count_photos_per_thing",
    "ensemble_head",
    "fit_whitening",
    "hub_reachable",
    "is_backbone",
    "is_factory",
    "linear_head",
    "mlp_head",
    "near_backbones",
    "offline_weights",
    "own_names",
    "parameter_groups",
    "part_sizes",
    "pool",
    "projector_head",
    "timm_form",
    "weights_at_hand",
    "weights_on_disk",
    "whitened_layer",
    "with_global_batch_norm",
]
