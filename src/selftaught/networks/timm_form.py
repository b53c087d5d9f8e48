"""A network as a plain timm model, if it has that form: pooling, then at most one linear layer."""

from dataclasses import dataclass
from typing import Any

import timm
import torch
from torch import Tensor, nn

from selftaught.networks.backbones import TimmBackbone
from selftaught.networks.model import EmbeddingNetwork

OWN = "encoder."
"""The start of the names of a network's own tensors, which differ from timm's."""
BACKBONE = "encoder.backbone.model."
TOLERANCE = 1e-4
"""The largest difference of vectors, relative to their length, that rounding explains."""


@dataclass(frozen=True)
class TimmForm:
    """What timm needs to build the network again."""

    architecture: str
    model_args: dict[str, Any]
    classifier: str
    """timm's name of the last layer, which gives the embedding; without a head there is no such layer."""
    dim: int
    state: dict[str, Tensor]


def timm_form(network: EmbeddingNetwork, name: str) -> TimmForm | str:
    """The network in timm's form, or in words why there is no such form."""
    backbone, head = network.encoder.backbone, network.heads["f"]
    if not isinstance(backbone, TimmBackbone):
        return "its backbone is not one of timm's"
    if not isinstance(head, nn.Identity | nn.Linear):
        return "its head has more than one layer"
    if backbone.feature_map and network.encoder.pooling == "gem":
        return "it pools by the generalized mean, which timm does not have (train with --set pooling=avg+max for that)"
    doubled = backbone.feature_map and network.encoder.pooling == "avg+max"
    if doubled and isinstance(head, nn.Identity):
        return "it has no head, and pools by average plus maximum"
    pool = "avgmax" if doubled else "avg"
    architecture, dim = name.split(".")[0], head.out_features if isinstance(head, nn.Linear) else 0
    model_args: dict[str, Any] = {"global_pool": pool} if backbone.feature_map else {}
    if network.encoder.preprocessing.multiple > 1:
        model_args["dynamic_img_size"] = True
    state = {key: tensor.detach().cpu().contiguous() for key, tensor in backbone.model.state_dict().items()}
    try:
        model: Any = timm.create_model(architecture, num_classes=dim, **model_args)
        classifier = str(model.pretrained_cfg["classifier"])
        if isinstance(head, nn.Linear):
            # timm halves the sum of average and maximum.
            state[f"{classifier}.weight"] = head.weight.detach().cpu() * (2 if doubled else 1)
            state[f"{classifier}.bias"] = head.bias.detach().cpu()
        model.load_state_dict(state)
    except (RuntimeError, TypeError, ValueError, KeyError, AssertionError):
        return f"timm's {architecture} has another last layer"
    difference, length = _compare(network, model.eval())
    if not difference <= TOLERANCE * length:
        return f"timm's {architecture} does more between pooling and its last layer"
    return TimmForm(architecture, model_args, classifier, dim, state)


def own_names(state: dict[str, Tensor], network: EmbeddingNetwork) -> dict[str, Tensor]:
    """Tensors under the network's own names, given under these or under timm's."""
    backbone, head = network.encoder.backbone, network.heads["f"]
    if any(key.startswith(OWN) for key in state) or not isinstance(backbone, TimmBackbone):
        return state
    inside = set(backbone.model.state_dict())
    renamed = {BACKBONE + key: tensor for key, tensor in state.items() if key in inside}
    last = {key.rpartition(".")[2]: tensor for key, tensor in state.items() if key not in inside}
    if isinstance(head, nn.Linear) and set(last) == {"weight", "bias"}:
        doubled = backbone.feature_map and network.encoder.pooling == "avg+max"
        renamed |= {"heads.f.weight": last["weight"] / (2 if doubled else 1), "heads.f.bias": last["bias"]}
    return renamed


@torch.inference_mode()
def _compare(network: EmbeddingNetwork, model: nn.Module) -> tuple[float, float]:
    """The largest difference between the vectors of both, and the length of the vectors."""
    preprocessing = network.encoder.preprocessing
    side = preprocessing.use_size
    device = next(network.parameters()).device
    pixels = torch.randint(256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    own = network(pixels.to(device))["f"].float().cpu()
    other = model(preprocessing(pixels)).float()
    other = nn.functional.normalize(other) if network.normalize else other
    return float((own - other).abs().max()), float(own.norm(dim=1).mean())
