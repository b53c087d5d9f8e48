"""The models of a stage: the floor that it starts from, and what it serves in the end."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from selftaught.embedder import Embedder
from selftaught.errors import printable
from selftaught.files import delete, read_file, write_atomically, write_json
from selftaught.model_files import DESCRIPTION, WEIGHTS, describe, write_model
from selftaught.networks import HALF, EmbeddingNetwork, Encoder, build_backbone, weights_on_disk, whitened_layer
from selftaught.parallel import barrier, rank, run_on_first
from selftaught.report import chance
from selftaught.run_folder import FLOOR, MODELS, TRAINED, read_models
from selftaught.training.assemble import Parts
from selftaught.training.floor import Floor, look, measure, measure_floors, measure_model, name_floor
from selftaught.training.readout import fit_readout, whitened_head

ORIGIN = "the model it started from"
SLACK = 0.005
"""How much lower "found again" may be after training for the trained model to be served: good runs lose at most a third
of this, and one image in 240 can make that difference."""
CEILING = 0.998
"""From here on "found again" tells little: among few photos nearly all are found, also after training that did harm."""


def has_floor(parts: Parts) -> bool:
    """Whether there is an untrained model to compare with: pretrained weights, and no labels to begin with."""
    return bool(parts.record.pretrained) and parts.record.labeled is None


def save_floor(parts: Parts) -> None:
    """Measure the models that the backbone gives before the first step, and keep the one to compare with."""
    floors: list[Floor] = []
    about, exponent = {}, HALF
    encoder = _untrained_encoder(parts)
    if encoder is not None:
        floors, exponent = measure_floors(parts.survey, parts.images, parts.settings.dim, encoder)
    if parts.record.from_run is not None:
        origin = parts.context.take_origin(parts.record.from_run, parts.fabric.device)
        about = origin.description
        floors.append(measure_model(parts.survey, parts.images, ORIGIN, origin.network))
    # Vectors that are made as those of the trained model, if there are such, so that "found again" can be compared.
    names = [name_floor(parts.learner.network.encoder.pooling, half) for half in (True, False)]
    best = next(floor for name in (ORIGIN, *names) for floor in floors if floor.name == name)
    alike = whitened = whitened_head(parts.learner, parts.settings, len(parts.images)) is not None
    if best.name == ORIGIN:
        alike = whitened == (about.get("settings", {}).get("deliver") == "whitened" and about["metric"] == "cosine")
    else:
        head, features = best.network.heads["f"], best.network.encoder.features
        kind, dim = ("linear", head.out_features) if isinstance(head, nn.Linear) else ("none", features)
        about = _describe(parts, best.network, kind, dim) | {"trained": False}
    rows = {floor.name: floor.row for floor in floors}
    if rank() == 0:
        write_model(parts.folder / FLOOR, best.network, about)
        write_json(parts.folder / MODELS, {"floor": best.name, "alike": alike, "exponent": exponent, "models": rows})
    for name, row in rows.items():
        parts.context.reporter.say(f"{name if name == ORIGIN else f'without training ({name})'}: {words(row)}")


def find_exponent(parts: Parts) -> float:
    """How much a stage whitens what it delivers, as was decided before its first step."""
    models = run_on_first(lambda: read_models(parts.folder)) if has_floor(parts) else None
    return HALF if models is None else float(models["exponent"])


def _untrained_encoder(parts: Parts) -> Encoder | None:
    """The backbone as it was before any training; None if its weights are not on this disk."""
    encoder, name = parts.learner.network.encoder, parts.record.backbone
    if parts.record.from_run is None:
        return encoder
    if parts.context.own is not None or name is None or not weights_on_disk(name):
        return None
    module = build_backbone(name).module
    return Encoder(module, encoder.preprocessing, True, encoder.pooling).to(parts.fabric.device).eval()


def save_model(parts: Parts, finished: bool = True) -> Embedder:
    """Write the model that a stage serves into its folder, and return it.

    It is the trained model. If the recipe asks for the better one and images are found again less surely than without
    training, it is the untrained model, and the trained one is kept beside it.
    """
    learner, network, settings = parts.learner, parts.learner.network, parts.settings
    wide, compared = whitened_head(learner, settings, len(parts.images)), finished and has_floor(parts)
    seen = look(parts.survey, parts.images) if wide is not None or compared else None
    exponent = parts.evaluation.exponent
    if wide is None or seen is None:
        served = EmbeddingNetwork(network.encoder, {"f": network.heads["f"]}, network.normalize)
        about = _describe(parts, served, learner.head, settings.dim)
    else:
        own = network.heads[wide]
        assert isinstance(own, nn.Linear)
        layer = whitened_layer(seen.center[wide], settings.dim, exponent, own)
        served = EmbeddingNetwork(network.encoder, {"f": layer}, normalize=True)
        about = _describe(parts, served, "linear", layer.out_features)
    embedder = Embedder(served, about if finished else about | {"finished": False})
    if not compared or seen is None:
        if rank() == 0:
            write_model(parts.folder, embedder.network, embedder.description)
        return embedder
    row = measure(seen, fit_readout(learner, settings, seen.center, exponent), parts.survey)
    models = run_on_first(lambda: read_models(parts.folder))
    if rank() == 0 and models is not None:
        write_json(parts.folder / MODELS, models | {"models": models["models"] | {"trained": row}})
    worse = models is not None and row["found_again"] < models["models"][models["floor"]]["found_again"] - SLACK
    serves_floor = bool(run_on_first(lambda: worse)) and settings.deliver == "whitened"
    if serves_floor:
        if rank() == 0:
            write_model(parts.folder / TRAINED, embedder.network, embedder.description)
            for name in (WEIGHTS, DESCRIPTION):
                write_atomically(parts.folder / name, read_file(parts.folder / FLOOR / name))
        barrier()
        embedder = Embedder.load(parts.folder, parts.fabric.device, parts.context.own)
    elif rank() == 0:
        delete(parts.folder / TRAINED)  # of an earlier leg
        write_model(parts.folder, embedder.network, embedder.description)  # last: it shows that the run is finished
    if models is not None:
        floors = {name: floor for name, floor in models["models"].items() if name != "trained"}
        count = len(parts.labeled or ())
        verdict = give_verdict(floors, models["floor"], row, serves_floor, count, models["alike"])
        parts.context.reporter.say(f"the model is in {printable(parts.folder)}: {verdict}")
    return embedder


def give_verdict(
    floors: Mapping[str, Mapping[str, float]],
    best: str,
    row: Mapping[str, float],
    served: bool,
    labeled: int = 0,
    alike: bool = True,
) -> str:
    """In words, whether training was worth it, and with ``labeled`` photos, how much of that may be chance.

    ``served``: the run serves the untrained model. ``alike``: the vectors of both models are made in the same way.
    """
    told = _compare(floors, best, row, served, alike)
    if "recall@1" not in row or not labeled:
        return told
    noise = 200 * chance(row["recall@1"], labeled)
    return f"{told}; with {labeled:,} labeled photos, up to {noise:.1f} points of Recall@1 may be chance"


def _compare(
    floors: Mapping[str, Mapping[str, float]], best: str, row: Mapping[str, float], served: bool, alike: bool
) -> str:
    """Both models' measurements in words, and which model is served or lies beside it."""
    scored, before, after = "recall@1" in row, floors[best]["found_again"], row["found_again"]
    without = "without this training" if ORIGIN in floors else "without training"
    untrained = best if best == ORIGIN else f"the untrained model ({best})"
    if scored:
        most = {score: max(floor[score] for floor in floors.values()) for score in ("recall@1", "map@r")}
        by = max(floors, key=lambda name: floors[name]["recall@1"])
        told = f"training {_change(row, most, 'recall@1')} Recall@1 ({row['recall@1']:.1%}; {without} "
        told += f"{most['recall@1']:.1%} at best: {by}) and {_change(row, most, 'map@r')} MAP@R "
        told += f"({row['map@r']:.1%}; {most['map@r']:.1%})"
    else:
        told = f"images are found again at {after:.2%}, {without} at {before:.2%} ({best}): "
        little = "so this says little; compare neighbors, which selftaught report shows"
        if not alike:
            told += f"the vectors of the two are made in different ways, {little}"
        else:
            told += "no sign that training did harm" if after >= before - SLACK else "training made it worse"
            told += f", but nearly all are found in any case, {little}" if min(before, after) >= CEILING else ""
    if not served:
        if scored and row["recall@1"] < floors[best]["recall@1"]:
            told += f"; by the labels {untrained} is the better one: it is in {FLOOR}/"
        return told
    if scored:
        told += f"; images are found again less surely than {without} ({after:.2%}, {before:.2%})"
    told += f", so {untrained} is served, and the trained one is in {TRAINED}/"
    if not scored:
        return told
    right = row["recall@1"] <= floors[best]["recall@1"]
    return told + f"; the labels say that this was {'right' if right else 'wrong'}"


def _change(row: Mapping[str, float], most: Mapping[str, float], score: str) -> str:
    """In words, by how much training changed a score, against the best model before it."""
    gain = round(100 * (row[score] - most[score]), 1)
    return f"{'gained' if gain > 0 else 'lost'} {abs(gain):.1f} points of" if gain else "did not change"


def words(row: Mapping[str, float]) -> str:
    """The measurements of a model in one line."""
    scores = f", Recall@1 {row['recall@1']:.1%}, MAP@R {row['map@r']:.1%}" if "recall@1" in row else ""
    return f"images found again {row['found_again']:.2%}{scores}"


def _describe(parts: Parts, network: EmbeddingNetwork, head: str, dim: int) -> dict[str, Any]:
    """The description of a model of this stage; ``head``: the kind of its head "f"."""
    backbone, own = parts.record.backbone, parts.record.own_backbone is not None
    assert backbone is not None
    return describe(network, backbone=backbone, own_backbone=own, dim=dim, head=head, settings=asdict(parts.settings))
