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
    linear_head,
    parameter_groups,
    part_sizes,
    pool,
)
from selftaught.networks.preprocessing import LARGEST_SIZE, Preprocessing
from selftaught.networks.timm_form import TimmForm, own_names, timm_form
from selftaught.networks.untrained import USE_SCALE, suited_pooling, suited_size, untrained_encoder
from selftaught.networks.weights import OFFLINE_BACKBONE, hub_reachable, offline_weights
from selftaught.networks.whitening import (
    HALF,
    WHITENED_FROM,
    WHITENED_ON,
    choose_exponent,
    count_photos_per_thing,
    fit_whitening,
    whitened_layer,
)
