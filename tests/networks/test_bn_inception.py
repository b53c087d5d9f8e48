from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selftaught.networks import Encoder, build_backbone
from selftaught.networks.bn_inception import BNInception

MODULES = ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
HALVING = ("3c", "4e")
FULL = ("1x1", "3x3_reduce", "3x3", "double_3x3_reduce", "double_3x3_1", "double_3x3_2", "pool_proj")


@pytest.fixture(scope="module")
def network() -> BNInception:
    torch.manual_seed(0)
    network = BNInception().eval()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
            nn.init.uniform_(layer.running_var, 0.5, 2)  # type: ignore[arg-type]
            nn.init.normal_(layer.running_mean)  # type: ignore[arg-type]
    return network


def pixels(size: int, n: int = 1) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_it_has_as_many_parameters_as_the_published_network(network: BNInception) -> None:
    parameters = sum(p.numel() for p in network.parameters())
    assert parameters == 10_270_240
    assert parameters + 1024 * 1000 + 1000 == 11_295_240


def test_layers_carry_the_published_names(network: BNInception) -> None:
    layers = ["conv1_7x7_s2", "conv2_3x3_reduce", "conv2_3x3"]
    for module in MODULES:
        parts = FULL[1:-1] if module in HALVING else FULL
        layers += [f"inception_{module}_{part}" for part in parts]
    names = {f"{layer}.{blob}" for layer in layers for blob in ("weight", "bias")}
    norms = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names |= {f"{layer}_bn.{tensor}" for layer in layers for tensor in norms}
    assert set(network.state_dict()) == names


@pytest.mark.parametrize("size", [224, 227])
@torch.no_grad()
def test_the_feature_map_is_seven_by_seven(network: BNInception, size: int) -> None:
    assert network(pixels(size)).shape == (1, 1024, 7, 7)


@torch.no_grad()
def reference(network: BNInception, x: Tensor) -> Tensor:
    """The network in double precision, from its state dict, with the statistics of eval mode."""
    state = {name: tensor.double() for name, tensor in network.state_dict().items()}

    def layer(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        x = F.conv2d(x, weight, state[f"{name}.bias"], stride, weight.shape[-1] // 2)
        mean, var, scale, shift = (
            state[f"{name}_bn.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / (var + 1e-5).sqrt() * scale + shift
        return x.clamp(min=0)

    halve = nn.MaxPool2d(3, 2, ceil_mode=True)
    x = halve(layer("conv1_7x7_s2", x.double(), 2))
    x = halve(layer("conv2_3x3", layer("conv2_3x3_reduce", x)))
    for module in MODULES:
        p = f"inception_{module}_"
        stride = 2 if module in HALVING else 1
        three = layer(p + "3x3", layer(p + "3x3_reduce", x), stride)
        double = layer(p + "double_3x3_2", layer(p + "double_3x3_1", layer(p + "double_3x3_reduce", x)), stride)
        if module in HALVING:
            x = torch.cat([three, double, halve(x)], 1)
            continue
        neighborhood = F.unfold(x, 3, padding=1).view(len(x), x.shape[1], 9, *x.shape[2:])
        # The features are rectified, so that a border of zeros never wins the maximum wrongly.
        pooled = neighborhood.amax(2) if module == "5b" else neighborhood.mean(2)
        x = torch.cat([layer(p + "1x1", x), three, double, layer(p + "pool_proj", pooled)], 1)
    return x


@torch.no_grad()
def test_the_output_is_that_of_the_definition_written_out(network: BNInception) -> None:
    x = pixels(70, n=2)
    expected = reference(network, x)
    torch.testing.assert_close(network(x).double(), expected, atol=1e-3 * float(expected.abs().max()), rtol=1e-3)


def test_frozen_batch_norm_and_the_encoder_work_with_it() -> None:
    backbone = build_backbone("bn_inception", "none")
    encoder = Encoder(backbone.module, backbone.preprocessing, freeze_batch_norm=True).train()
    assert encoder.features == 1024
    assert (backbone.preprocessing.size, backbone.preprocessing.channels) == (227, "BGR")
    encoder(torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)).sum().backward()
    assert all(not m.training for m in encoder.modules() if isinstance(m, nn.BatchNorm2d))


def test_the_published_form_loads_with_flat_norms_and_without_its_classifier(
    tmp_path: Path, network: BNInception
) -> None:
    state = {name: t for name, t in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    published = {name: t[None] if "_bn." in name else t for name, t in state.items()}
    classifier = {"last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)}
    torch.save(published | classifier, tmp_path / "bn.pth", _use_new_zipfile_serialization=False)
    backbone = build_backbone("bn_inception", str(tmp_path / "bn.pth"))
    loaded = backbone.module.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
