"""The model card: what a model was made from, what it is worth, and how to use it. Its words are in static/card.md."""

from typing import Any

import timm
from huggingface_hub import ModelCard, ModelCardData

from selftaught.files import read_static
from selftaught.networks import Preprocessing, is_factory
from selftaught.sharing.history import SCORES, SIGNALS, verdict

SETTINGS = ("method", "epochs", "batch_size", "neighbors", "lr", "seed")
"""The settings that the card names."""


def make_card(
    description: dict[str, Any],
    license: str | None,  # noqa: A002
    why_not: str | None,
    parity: dict[str, str],
) -> str:
    """The card as Markdown with the hub's header.

    Args:
        description: of the model, with the result of :func:`~selftaught.sharing.history.add_history`.
        license: as the hub names it, such as "apache-2.0".
        why_not: why timm and others cannot load the model; None if they can.
        parity: by library, how far its vectors are from the model's, in words.
    """
    history, settings, backbone = (
        description.get("training", {}),
        description.get("settings", {}),
        description["backbone"],
    )
    before, after = history.get("before", {}), history.get("after", {})
    tags = ["metric-learning", "image-retrieval", "selftaught", *([] if why_not else ["timm", "sentence-transformers"])]
    data = ModelCardData(
        license=license, library_name="selftaught", pipeline_tag="image-feature-extraction", tags=sorted(tags)
    )
    config = timm.get_pretrained_cfg(backbone) if timm.is_model(backbone) else None
    card = ModelCard.from_template(
        data,
        template_str=read_static("sharing", "card.md"),
        model=description,
        own_backbone=description["own_backbone"] or is_factory(backbone),
        backbone_license=getattr(config, "license", None),
        seen=Preprocessing(**description["preprocessing"]),
        settings=", ".join(f"{name} {settings[name]}" for name in SETTINGS if settings.get(name) is not None),
        images=" and ".join(f"`{name}`" for name in history.get("images", [])) or "images that are not named",
        history=history,
        verdict=verdict(description),
        scores=[
            (name.replace("_", " "), _value(name, before), _value(name, after))
            for name in (*SCORES, *SIGNALS)
            if name in after
        ],
        why_not=why_not,
        parity=parity,
    )
    return f"{card}\n"


def _value(name: str, row: dict[str, float]) -> str:
    if name not in row:
        return ""
    return f"{row[name]:.1f}" if name == "effective_rank" else f"{row[name]:.1%}"
