import copy
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
import torchvision.models as zoo
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor

from selftaught.errors import SelftaughtError, UsageError
from selftaught.networks import Encoder, build_backbone, torchvision_backbone
from selftaught.networks.torchvision_backbone import torchvision_names, torchvision_preprocessing

MAPS = {
    "resnet18": "layer4.1.relu_1",
    "mobilenet_v3_small": "features.12",
    "googlenet": "inception5b.cat",
    "squeezenet1_1": "features.12.cat",
    "shufflenet_v2_x0_5": "conv5.2",
    "mnasnet0_5": "layers.16",
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
@torch.no_grad()
def test_the_backbone_is_the_feature_map_before_the_pool(name: str) -> None:
    torch.manual_seed(0)
    backbone = build_backbone(f"torchvision.{name}", "none")
    model = zoo.get_model(name, weights=None, **({"aux_logits": False} if name == "googlenet" else {})).eval()
    ours: nn.Module = backbone.module.model  # type: ignore[assignment]
    ours.load_state_dict({k: v for k, v in model.state_dict().items() if k in ours.state_dict()})
    x = torch.randn(2, 3, 64, 64)
    expected = create_feature_extractor(model, [MAPS[name]])(x)[MAPS[name]]
    torch.testing.assert_close(backbone.module.eval()(x), expected, rtol=1e-4, atol=1e-5)
    assert expected.ndim == 4
    assert not backbone.pretrained


@torch.no_grad()
def test_without_a_pooled_map_it_is_the_vector_before_the_classifier() -> None:
    backbone = build_backbone("torchvision.densenet121", "none")
    assert backbone.module.eval()(torch.randn(2, 3, 64, 64)).shape == (2, 1024)


def test_a_name_is_kept_so_that_it_builds_the_same_network_again() -> None:
    backbone = build_backbone("torchvision.resnet18", "none")
    again = build_backbone(backbone.name, "none")
    encoder = Encoder(again.module, again.preprocessing)
    encoder.backbone.load_state_dict(backbone.module.state_dict())
    assert encoder.features == 512
    copy.deepcopy(encoder)


def test_preprocessing_is_that_of_the_default_weights() -> None:
    plain = torchvision_preprocessing("resnet50")
    assert (plain.size, plain.mean, plain.std) == (224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert torchvision_preprocessing("efficientnet_b2").size == 288
    assert torchvision_preprocessing("efficientnet_v2_l").mean == (0.5, 0.5, 0.5)
    assert torchvision_preprocessing("vit_b_16").fixed_size
    assert all(torchvision_preprocessing(name).size >= 224 for name in torchvision_names())


@torch.no_grad()
def test_pixels_of_inceptions_are_scaled_as_torchvision_scales_them() -> None:
    images = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normalized = (images / 255 - mean[:, None, None]) / std[:, None, None]
    network = zoo.googlenet(weights=None, init_weights=False, transform_input=True)
    torch.testing.assert_close(torchvision_preprocessing("googlenet")(images), network._transform_input(normalized))


def _serve(monkeypatch: pytest.MonkeyPatch, name: str, answer: dict[str, Tensor] | Exception) -> list[dict[str, Any]]:
    """Answer in place of the server; returns what was asked."""
    asked: list[dict[str, Any]] = []
    real = type(zoo.get_model_weights(name).DEFAULT)

    def get_state_dict(_: object, **options: Any) -> dict[str, Tensor]:
        asked.append(options)
        print("Downloading: ...")
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(torchvision_backbone, "answers", lambda _: True)
    monkeypatch.setattr(real, "get_state_dict", get_state_dict)
    return asked


def test_default_weights_are_fetched_checked_and_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = zoo.resnet18(weights=None).state_dict()
    asked = _serve(monkeypatch, "resnet18", state)
    backbone = build_backbone("torchvision.resnet18")
    assert backbone.pretrained
    loaded = backbone.module.state_dict()
    assert all(torch.equal(loaded[f"model.{k}"], v) for k, v in state.items() if not k.startswith("fc."))
    assert asked[0]["check_hash"]
    assert asked[0]["weights_only"]
    assert not capsys.readouterr().out


def test_weights_that_cannot_be_fetched_are_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    _serve(monkeypatch, "resnet18", URLError("timed\nout"))
    with pytest.raises(SelftaughtError, match=r"could not be fetched.*timed out.*--weights FILE.*none") as caught:
        build_backbone("torchvision.resnet18")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(torchvision_backbone, "answers", lambda _: False)
    with pytest.raises(SelftaughtError, match=r"cannot be reached: pass --weights FILE.*--weights none"):
        build_backbone("torchvision.resnet18")


def test_old_names_of_published_files_are_understood(tmp_path: Path) -> None:
    state = zoo.densenet121(weights=None).state_dict()
    old = {}
    for name, tensor in state.items():
        for part in ("norm1", "conv1", "norm2", "conv2"):
            name = name.replace(f".{part}.", f".{part[:-1]}.{part[-1]}.") if "denselayer" in name else name
        old[name] = tensor
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, tmp_path / "densenet.pth")
    loaded = build_backbone("torchvision.densenet121", str(tmp_path / "densenet.pth")).module.state_dict()
    assert all(torch.equal(loaded[f"model.{k}"], v) for k, v in state.items() if not k.startswith("classifier"))
    names = torchvision_backbone.rename_layers({"encoder.layers.encoder_layer_0.mlp.linear_2.bias": torch.zeros(1)})
    assert list(names) == ["encoder.layers.encoder_layer_0.mlp.3.bias"]


@pytest.mark.parametrize("weights", ["auto", "none"])
def test_a_misspelt_name_gets_torchvision_s_nearest(weights: str) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'torchvision\.resnet50'"):
        build_backbone("torchvision.resnet_50", weights)
    with pytest.raises(UsageError, match=r"give 'auto', 'small', 'googlenet', 'bn_inception', 'torchvision\.NAME'"):
        build_backbone("torchvision.##", weights)
