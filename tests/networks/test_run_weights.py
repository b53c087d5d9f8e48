"""The weights of a run, as those that another begins with."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from selftaught import Embedder
from selftaught.errors import SelftaughtError, UsageError
from selftaught.model_files import describe, write_model
from selftaught.networks import EmbeddingNetwork, Encoder, build_backbone, linear_head


def test_a_run_folder_or_its_model_gives_its_backbone(run: Path) -> None:
    saved = load_file(run / "model.safetensors")
    for place, name in ((run, "auto"), (run, "small"), (run / "model.safetensors", "small")):
        built = build_backbone(name, str(place))
        assert built.name == "small"
        assert built.pretrained
        for key, tensor in built.module.state_dict().items():
            assert torch.equal(tensor, saved[f"encoder.backbone.{key}"])


@pytest.mark.parametrize("name", ["googlenet", "torchvision.resnet18", "resnet10t"])
def test_backbones_of_every_kind_come_back_with_their_preprocessing(tmp_path: Path, name: str) -> None:
    built = build_backbone(name, "none")
    inputs = replace(built.preprocessing, mean=(1, 2, 3), use_size=2 * built.preprocessing.size)
    network = EmbeddingNetwork(Encoder(built.module, inputs), {"f": linear_head(8, 4)})
    about = describe(network, backbone=name, own_backbone=False, dim=4, head="linear", settings={"recipe": "best"})
    write_model(tmp_path, network, about)
    again = build_backbone("auto", str(tmp_path))
    assert again.preprocessing == replace(inputs, use_size=inputs.size)
    for key, tensor in built.module.state_dict().items():
        assert torch.equal(again.module.state_dict()[key], tensor)


def test_a_folder_to_share_gives_its_backbone_though_its_names_are_those_of_timm(tmp_path: Path) -> None:
    network = EmbeddingNetwork(
        Encoder(build_backbone("resnet10t", "none").module, build_backbone("resnet10t", "none").preprocessing),
        {"f": linear_head(512, 4)},
    )
    about = describe(
        network, backbone="resnet10t", own_backbone=False, dim=4, head="linear", settings={"recipe": "best"}
    )
    Embedder(network, about).save(tmp_path / "shared")
    again = build_backbone("auto", str(tmp_path / "shared"))
    for key, tensor in network.encoder.backbone.state_dict().items():
        assert torch.equal(again.module.state_dict()[key], tensor)


def test_weights_of_another_backbone_and_folders_without_a_model_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a model of the backbone small, not of resnet18: give that one"):
        build_backbone("resnet18", str(run))
    with pytest.raises(UsageError, match=r"there is no model in .* to take weights from"):
        build_backbone("small", str(tmp_path))
    shutil.copytree(run, tmp_path / "run")
    for broken, words in (
        ("[]", "is damaged"),
        (json.dumps({"backbone": "small", "preprocessing": {"size": -1}}), "does not describe a model"),
        (json.dumps({"backbone": "small", "preprocessing": {}, "own_backbone": True}), "a backbone of your own"),
    ):
        (tmp_path / "run" / "model.json").write_text(broken)
        with pytest.raises(SelftaughtError, match=words):
            build_backbone("small", str(tmp_path / "run"))
