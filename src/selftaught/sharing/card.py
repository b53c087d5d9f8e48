"""The model card: what a model was made from, what it is worth, and how to use it."""

from typing import Any

import timm
from huggingface_hub import ModelCard, ModelCardData

from selftaught.networks import Preprocessing, is_factory
from selftaught.sharing.history import SCORES, SIGNALS, verdict

CODE = "```python\n{}```\n"


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
    history = description.get("training", {})
    tags = ["metric-learning", "image-retrieval", "selftaught", *([] if why_not else ["timm", "sentence-transformers"])]
    data = ModelCardData(
        license=license, library_name="selftaught", pipeline_tag="image-feature-extraction", tags=sorted(tags)
    )
    parts = [
        f"# Image embeddings: {description['backbone']}, {description['dim']} dimensions",
        _about(description),
        "## Data and training",
        _training(description, history),
        "## How good it is",
        verdict(description),
        _table(history),
        "## How to use it",
        _own_use(description),
        _other_use(description, why_not, parity),
        "## License",
        _license(description, license),
    ]
    content = "\n\n".join(part.strip() for part in parts if part) + "\n"
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n{content}"))


def _about(description: dict[str, Any]) -> str:
    cosine = description["metric"] == "cosine"
    kind = "Vectors have length 1; compare them by cosine." if cosine else "Compare vectors by Euclidean distance."
    seen = Preprocessing(**description["preprocessing"])
    return (
        "Maps an image to a vector, so that images of the same thing are near. Made with selftaught, without labels "
        f"unless said below. {kind} An image is seen as its center, {seen.use_size}×{seen.use_size} pixels after its "
        f"short side was resized to {seen.use_resize}."
    )


def _training(description: dict[str, Any], history: dict[str, Any]) -> str:
    settings = description.get("settings", {})
    if description.get("recipe", "none") == "none":
        return f"The pretrained backbone {description['backbone']} as it is; it was not trained further."
    names = " and ".join(f"`{name}`" for name in history.get("images", [])) or "images that are not named"
    shown = ("method", "epochs", "batch_size", "neighbors", "lr", "seed")
    values = ", ".join(f"{name} {settings[name]}" for name in shown if settings.get(name) is not None)
    done = f" Epochs finished: {history['epochs']}." if "epochs" in history else ""
    if description.get("trained") is False:
        whitened = f", its features half-whitened on {names}" if description["head"] == "linear" else ""
        return (
            f"The pretrained backbone {description['backbone']}{whitened}. It was trained with the recipe "
            f"`{description['recipe']}` ({values}), but images were then found again less surely, so this is the model "
            "without that training."
        )
    return (
        f"Trained on {names} with the recipe `{description['recipe']}` from the backbone {description['backbone']} "
        f"({values}; everything is in `model.json`).{done}"
    )


def _table(history: dict[str, Any]) -> str:
    before, after = history.get("before", {}), history.get("after", {})
    names = [name for name in (*SCORES, *SIGNALS) if name in after]
    if not names:
        return ""
    rows = [f"| {name.replace('_', ' ')} | {_value(name, before)} | {_value(name, after)} |" for name in names]
    where = f"Scores are on `{history['measured_on']}`.\n\n" if "measured_on" in history else ""
    start = f"without training: {history['floor']}" if "floor" in history else "before training"
    return where + "\n".join([f"| | {start} | after training |", "|---|---|---|", *rows])


def _value(name: str, row: dict[str, float]) -> str:
    if name not in row:
        return ""
    return f"{row[name]:.1f}" if name == "effective_rank" else f"{row[name]:.1%}"


def _own_use(description: dict[str, Any]) -> str:
    own = ", backbone=module" if description["own_backbone"] or is_factory(description["backbone"]) else ""
    return CODE.format(
        "from selftaught import Embedder\n\n"
        f'model = Embedder.load("folder or user/name"{own})\n'
        'vectors = model.encode(["a.jpg", "b.jpg"])  # paths, Pillow images or arrays\n'
    )


def _other_use(description: dict[str, Any], why_not: str | None, parity: dict[str, str]) -> str:
    if why_not is not None:
        return f"Other libraries cannot load it: {why_not}."
    timm_call, transformers_call = "model(transform(image)[None])", "model(**processor(image)).logits"
    if description["head"] == "none":
        transformers_call = "model(**processor(image)).pooler_output"
    if description["metric"] == "cosine":
        timm_call, transformers_call = (f"torch.nn.functional.normalize({c})" for c in (timm_call, transformers_call))
    auto = "AutoModel" if description["head"] == "none" else "AutoModelForImageClassification"
    code = (
        "import timm, torch\n\n"
        'model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()  # or "hf-hub:user/name"\n'
        "transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))\n"
        f"vectors = {timm_call}\n\n"
        f"from transformers import AutoImageProcessor, {auto}\n\n"
        f'model, processor = {auto}.from_pretrained("FOLDER"), AutoImageProcessor.from_pretrained("FOLDER")\n'
        f"vectors = {transformers_call}\n\n"
        "from sentence_transformers import SentenceTransformer\n\n"
        'vectors = SentenceTransformer("FOLDER").encode([image])\n'
    )
    how_far = "\n".join(f"- {library}: {words}" for library, words in parity.items())
    return (
        "Without selftaught, and without remote code:\n\n" + CODE.format(code) + "\n"
        "These libraries first resize an image and then crop it, selftaught does both in one step, so vectors differ "
        f"a little: do not mix them in one collection. Measured on drawn photos:\n\n{how_far}"
    )


def _license(description: dict[str, Any], license: str | None) -> str:  # noqa: A002
    config = timm.get_pretrained_cfg(description["backbone"]) if timm.is_model(description["backbone"]) else None
    of_backbone = getattr(config, "license", None)
    theirs = f" timm states {of_backbone} for the weights of the backbone it began with." if of_backbone else ""
    ours = f"{license}." if license else "Not stated by those who trained it: ask them."
    return ours + theirs
