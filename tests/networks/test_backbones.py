from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import timm
import torch
from safetensors.torch import save_file

from selftaught.errors import SelftaughtError, UsageError
from selftaught.networks import Encoder, Preprocessing, backbones, build_backbone
from selftaught.networks.backbones import TimmBackbone
from selftaught.networks.weights import OFFLINE_BACKBONE, load_in_order, offline_weights, read_state


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "hub_reachable", lambda: False)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet"])
def test_any_timm_name_gives_a_backbone_with_its_own_preprocessing(name: str) -> None:
    backbone = build_backbone(name, "none")
    config: Any = timm.get_pretrained_cfg(name)
    assert backbone.preprocessing.size == config.input_size[-1]
    assert backbone.preprocessing.mean == tuple(config.mean)
    assert not backbone.pretrained
    encoder = Encoder(backbone.module, backbone.preprocessing).eval()
    size = backbone.preprocessing.squash
    assert encoder(torch.zeros(2, 3, size, size, dtype=torch.uint8)).shape == (2, encoder.features)


def test_a_vision_transformer_takes_other_sizes_and_gives_timms_vectors_at_its_own() -> None:
    backbone = build_backbone("vit_tiny_patch16_224", "none")
    inputs, module = backbone.preprocessing, cast(TimmBackbone, backbone.module)
    assert (inputs.size, inputs.fixed_size, inputs.multiple, inputs.squash) == (224, False, 16, 256)
    plain: Any = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    plain.load_state_dict(module.model.state_dict())
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(module.eval()(images), plain.eval()(images), rtol=1e-5, atol=1e-6)
        assert module(torch.rand(1, 3, 96, 96)).shape == (1, 192)
    with pytest.raises(ValueError, match="images of 224 or 240 pixels, not of 230: give a multiple of 16"):
        replace(inputs, use_size=230)


def test_a_transformer_that_does_not_say_which_sizes_it_takes_keeps_its_own() -> None:
    with torch.device("meta"):  # without memory for its weights
        inputs = build_backbone("swinv2_cr_tiny_224", "none").preprocessing
    assert (inputs.size, inputs.fixed_size, inputs.multiple) == (224, True, 1)


def test_a_size_is_fitted_to_the_patches() -> None:
    inputs = Preprocessing(size=518, multiple=14)
    assert [inputs.fit(size) for size in (1, 224, 229, 232, 518 * 1.25)] == [14, 224, 224, 238, 644]
    assert inputs.squash == 588  # of 592
    with pytest.raises(ValueError, match="whole sizes"):
        Preprocessing(multiple=0)


def test_a_misspelt_backbone_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'resnet50'"):
        build_backbone("resnet_50")
    with pytest.raises(UsageError, match="did you mean 'googlenet'"):
        build_backbone("google_net", "none")
    with pytest.raises(
        UsageError, match=r"'auto', 'small', 'googlenet', 'bn_inception', 'torchvision\.NAME' or .* timm"
    ):
        build_backbone("##")


@pytest.mark.parametrize(
    "name", ["small", "small_abe", "googlenet", "bn_inception", "torchvision.resnet18", "test_resnet"]
)
def test_a_backbone_s_name_builds_it_again(name: str) -> None:
    backbone = build_backbone(name, "none")
    again = build_backbone(backbone.name, "none")
    again.module.load_state_dict(backbone.module.state_dict())
    assert again.preprocessing == backbone.preprocessing


def test_pretrained_weights_are_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []
    real: Any = timm.create_model

    def create(name: str, pretrained: bool, **options: Any) -> Any:
        asked.append((name, pretrained))
        return real(name, pretrained=False, **options)

    monkeypatch.setattr(backbones, "hub_reachable", lambda: True)
    monkeypatch.setattr(timm, "create_model", create)
    assert build_backbone("test_resnet").pretrained
    assert asked == [("test_resnet", True)]


@pytest.mark.usefixtures("no_hub")
def test_without_hub_and_package_one_sentence_names_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "offline_weights", lambda: None)
    for name in ("auto", "tf_efficientnet_lite0", "resnet18"):
        with pytest.raises(SelftaughtError, match=r"selftaught\[offline\].*--weights FILE.*--weights none") as caught:
            build_backbone(name)
        assert "\n" not in str(caught.value)
        assert ("use tf_efficientnet_lite0 instead" in str(caught.value)) == (name == "resnet18")


@pytest.mark.usefixtures("no_hub")
def test_offline_weights_fit_in_shape_and_order_and_are_not_random() -> None:
    file = offline_weights()
    assert file is not None, "the extra 'offline' belongs to the development install"
    original = read_state(file)
    backbone = build_backbone("auto")
    assert (backbone.name, backbone.pretrained) == (OFFLINE_BACKBONE, True)
    mapped = backbone.module.state_dict()
    assert len(mapped) == len(original) - 2, "all but the classifier"
    for (theirs, a), (ours, b) in zip(list(original.items())[:-2], mapped.items(), strict=True):
        assert torch.equal(a, b), (theirs, ours)
        assert theirs.rsplit(".", 1)[-1] == ours.rsplit(".", 1)[-1], (theirs, ours)
    x = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
    torch.testing.assert_close(backbone.preprocessing(x), torch.ones(1, 3, 1, 1))

    # With the classifier that is left out above, the network knows drawings of things for what they are.
    network = timm.create_model(OFFLINE_BACKBONE, pretrained=False).eval()
    load_in_order(network, original)
    with torch.no_grad():
        named = network(backbone.preprocessing(_drawings())).argmax(1)
    assert named.tolist() == [920, 851, 904]  # ImageNet's traffic light, television, window screen


def test_weights_from_a_file_are_loaded_and_the_classifier_left_out(tmp_path: Path) -> None:
    model: Any = timm.create_model("test_resnet", pretrained=False)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        backbone = build_backbone("test_resnet", str(tmp_path / name))
        assert backbone.pretrained
        loaded = backbone.module.state_dict()
        assert all(torch.equal(loaded[f"model.{k}"], v) for k, v in state.items() if not k.startswith("fc."))


def test_a_file_of_another_network_says_what_does_not_fit(tmp_path: Path) -> None:
    state = timm.create_model("test_resnet", pretrained=False).state_dict()
    state["conv1.0.weight"] = torch.zeros(1, 2, 3)
    state["extra"] = torch.zeros(1)
    del state["layer1.0.conv1.weight"]
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(SelftaughtError) as caught:
        build_backbone("test_resnet", str(tmp_path / "w.safetensors"))
    for part in ("missing: layer1.0.conv1.weight", "unexpected: extra", "1×2×3 in the file"):
        assert part in str(caught.value)


def test_files_that_could_run_code_or_are_damaged_are_refused(tmp_path: Path) -> None:
    torch.save({"a": Path()}, tmp_path / "code.pth")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0")
    (tmp_path / "text.pth").write_text("hello")
    for name in ("code.pth", "cut.safetensors", "text.pth"):
        with pytest.raises(SelftaughtError, match="cannot read weights") as caught:
            build_backbone("test_resnet", str(tmp_path / name))
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no weights file"):
        build_backbone("test_resnet", str(tmp_path / "missing.pth"))


def _drawings() -> torch.Tensor:
    """A traffic light, a television, a window screen."""
    y, x = torch.meshgrid(torch.arange(224), torch.arange(224), indexing="ij")
    light = torch.full((3, 224, 224), 60)
    light[:, ((x - 112).abs() < 40) & (y > 10) & (y < 214)] = 15
    for row, color in enumerate([(255, 0, 0), (255, 200, 0), (0, 255, 60)]):
        lamp = (x - 112) ** 2 + (y - (52 + 60 * row)) ** 2 < 24**2
        light[:, lamp] = torch.tensor(color)[:, None]
    television = torch.full((3, 224, 224), 230)
    television[:, 50:170, 30:194] = 20
    television[:, 60:160, 40:184] = torch.tensor([60, 110, 200])[:, None, None]
    screen = ((x % 20 < 3) | (y % 20 < 3)).expand(3, 224, 224) * 255
    return torch.stack([light, television, screen]).to(torch.uint8)
