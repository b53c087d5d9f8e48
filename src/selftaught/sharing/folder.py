"""A folder with a model that selftaught, timm, transformers and sentence-transformers load."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save
from timm.data.transforms_factory import create_transform
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.data import draw_photos
from selftaught.encoding import views_at_use
from selftaught.files import write_atomically, write_json
from selftaught.model_files import DESCRIPTION, WEIGHTS, write_model
from selftaught.networks import EmbeddingNetwork, Preprocessing, TimmForm, timm_form
from selftaught.sharing.card import make_card

CARD, CONFIG, MODULES = "README.md", "config.json", "modules.json"
SENTENCE_CONFIG, SENTENCE_MODEL = "sentence_bert_config.json", "config_sentence_transformers.json"
DENSE, NORMALIZE = "1_Dense", "2_Normalize"


@dataclass(frozen=True)
class Shared:
    """A folder that was written, and how other libraries can use it."""

    folder: Path
    why_not: str | None
    """Why timm and others cannot load it; None if they can."""
    parity: dict[str, str]
    """By library, how far its vectors are from the model's, in words."""


def write_shared(
    folder: Path,
    network: EmbeddingNetwork,
    description: dict[str, Any],
    license: str | None,  # noqa: A002
) -> Shared:
    """Write weights, description and card, and the files for other libraries if they can load the model."""
    folder.mkdir(parents=True, exist_ok=True)
    form: TimmForm | str = "it averages several views of an image"
    if not description.get("mirror") and description.get("scales", 1) == 1:
        form = timm_form(network, str(description["backbone"]))
    parity: dict[str, str] = {}
    if isinstance(form, TimmForm):
        parity = compare_with_timm(network, form, Preprocessing(**description["preprocessing"]))
        _write_for_others(folder, network, description, form)
    else:
        write_model(folder, network, description)
    why_not = form if isinstance(form, str) else None
    write_atomically(folder / CARD, make_card(description, license, why_not, parity))
    return Shared(folder, why_not, parity)


@torch.inference_mode()
def compare_with_timm(network: EmbeddingNetwork, form: TimmForm, seen: Preprocessing) -> dict[str, str]:
    """How far timm's vectors of drawn photos are from the model's, with the model's views and with timm's own."""
    model: Any = timm.create_model(form.architecture, num_classes=form.dim, **form.model_args)
    model.load_state_dict(form.state)
    model.eval()
    photos = draw_photos()
    views = torch.cat([views_at_use(seen)(photo, "center") for photo in photos])
    own = network(views.to(next(network.parameters()).device))["f"].float().cpu()

    def embed(inputs: Tensor) -> Tensor:
        vectors: Tensor = model(inputs)
        return F.normalize(vectors) if network.normalize else vectors

    difference = float((embed(seen(views)) - own).abs().max())
    transform = create_transform(**_data_config(seen))
    cosine = float(F.cosine_similarity(embed(torch.stack([transform(p) for p in photos])), own).min())
    length = float(own.norm(dim=1).mean())
    return {
        "the same pixels": f"largest difference {difference:.1e} at a length of {length:.3g}",
        "timm's own resizing, which the others use too": f"cosine at least {cosine:.4f} on drawn photos; of other "
        "photos it can be lower",
    }


def _data_config(seen: Preprocessing) -> dict[str, Any]:
    """Preprocessing in timm's format."""
    return {
        "input_size": [3, seen.use_size, seen.use_size],
        "interpolation": "bilinear",
        "crop_pct": seen.use_size / seen.use_resize,
        "crop_mode": "center",
        "mean": [value / seen.value_range for value in seen.mean],
        "std": [value / seen.value_range for value in seen.std],
    }


def _write_for_others(folder: Path, network: EmbeddingNetwork, description: dict[str, Any], form: TimmForm) -> None:
    features = network.encoder.features
    config = {
        "architecture": form.architecture,
        "num_classes": form.dim,
        "num_features": features,
        "model_args": form.model_args,
        "pretrained_cfg": {
            **_data_config(Preprocessing(**description["preprocessing"])),
            "num_classes": form.dim,
            "classifier": form.classifier,
        },
    }
    steps = [("Transformer", "")]
    if form.dim:
        dense = {"linear.weight": form.state[f"{form.classifier}.weight"]}
        dense |= {"linear.bias": form.state[f"{form.classifier}.bias"]}
        identity = f"{nn.Identity.__module__}.{nn.Identity.__qualname__}"
        about = {"in_features": features, "out_features": form.dim, "bias": True, "activation_function": identity}
        (folder / DENSE).mkdir(exist_ok=True)
        write_atomically(folder / DENSE / WEIGHTS, save(dense, metadata={"format": "pt"}))
        write_json(folder / DENSE / CONFIG, about)
        steps.append(("Dense", DENSE))
    if network.normalize:
        (folder / NORMALIZE).mkdir(exist_ok=True)
        write_json(folder / NORMALIZE / CONFIG, {})
        steps.append(("Normalize", NORMALIZE))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(steps)
    ]
    modality = {"image": {"method": "forward", "method_output_name": "pooler_output"}}
    task = {"transformer_task": "feature-extraction", "modality_config": modality}
    write_json(folder / CONFIG, config)
    write_json(folder / SENTENCE_CONFIG, task | {"module_output_name": "sentence_embedding"})
    write_json(
        folder / SENTENCE_MODEL, {"model_type": "SentenceTransformer", "similarity_fn_name": description["metric"]}
    )
    write_json(folder / MODULES, modules)
    write_json(folder / DESCRIPTION, description)
    write_atomically(folder / WEIGHTS, save(form.state, metadata={"format": "pt"}))
