from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selftaught.errors import UsageError
from selftaught.networks import EmbeddingNetwork, Encoder, build_backbone, linear_head
from selftaught.networks.googlenet import GoogLeNet, from_caffe
from selftaught.networks.weights import tensors_in

CAFFE_LAYERS = ("1x1", "3x3_reduce", "3x3", "5x5_reduce", "5x5", "pool_proj")


@pytest.fixture(scope="module")
def network() -> GoogLeNet:
    torch.manual_seed(0)
    return GoogLeNet().eval()


def pixels(size: int, n: int = 1) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1)) * 60


def test_it_has_as_many_parameters_as_the_paper_s_network(network: GoogLeNet) -> None:
    assert sum(p.numel() for p in network.parameters()) == 5_973_552
    encoder = Encoder(network, build_backbone("googlenet", "none").preprocessing)
    assert encoder.features == 1024
    student = EmbeddingNetwork(encoder, {"f": linear_head(1024, 512), "g": linear_head(1024, 1024)})
    assert round(sum(p.numel() for p in student.parameters()) / 1e6, 2) == 7.55


def test_layers_carry_caffe_s_names(network: GoogLeNet) -> None:
    blocks = [f"inception_{name}" for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")]
    names = [
        "conv1.7x7_s2",
        "conv2.3x3_reduce",
        "conv2.3x3",
        *(f"{b}.{layer}" for b in blocks for layer in CAFFE_LAYERS),
    ]
    assert list(network.state_dict()) == [f"{name}.{blob}" for name in names for blob in ("weight", "bias")]
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


@pytest.mark.parametrize(("size", "sides"), [(224, (56, 28, 28, 14, 7, 7)), (227, (57, 28, 28, 14, 7, 7))])
@torch.no_grad()
def test_every_stage_has_caffe_s_size(network: GoogLeNet, size: int, sides: tuple[int, ...]) -> None:
    seen: list[int] = []
    layers = (
        network.conv2["3x3"],
        *(getattr(network, f"inception_{name}")["1x1"] for name in ("3a", "3b", "4a", "5a")),
    )
    hooks = [layer.register_forward_hook(lambda *call: seen.append(call[2].shape[-1])) for layer in layers]
    out = network(pixels(size))
    for hook in hooks:
        hook.remove()
    assert out.shape == (1, 1024, 7, 7)
    assert (*seen, out.shape[-1]) == sides


def response_norm_by_loops(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    for c in range(x.shape[1]):
        window = x[:, max(0, c - 2) : c + 3]
        out[:, c] = x[:, c] / (1 + 1e-4 / 5 * window.square().sum(1)) ** 0.75
    return out


def pool_by_loops(x: Tensor, stride: int, padding: int) -> Tensor:
    """3×3 maxima; windows that start inside the image count, also if they reach out of it."""
    x = F.pad(x, [padding] * 4, value=-torch.inf)
    side = x.shape[-1]
    starts = range(0, side - 2, stride) if (side - 3) % stride == 0 else range(0, side - 1, stride)
    return torch.stack(
        [torch.stack([x[..., i : i + 3, j : j + 3].amax((-2, -1)) for j in starts], -1) for i in starts], -2
    )


@torch.no_grad()
def reference(state: dict[str, Tensor], x: Tensor) -> Tensor:
    def layer(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, state[f"{name}.bias"], stride, padding=weight.shape[-1] // 2).clamp(min=0)

    x = response_norm_by_loops(pool_by_loops(layer("conv1.7x7_s2", x, 2), 2, 0))
    x = pool_by_loops(response_norm_by_loops(layer("conv2.3x3", layer("conv2.3x3_reduce", x))), 2, 0)
    for name in ("3a", "3b", "pool", "4a", "4b", "4c", "4d", "4e", "pool", "5a", "5b"):
        if name == "pool":
            x = pool_by_loops(x, 2, 0)
            continue
        one, three_reduce, three, five_reduce, five, projected = (f"inception_{name}.{part}" for part in CAFFE_LAYERS)
        branches = [layer(one, x), layer(three, layer(three_reduce, x)), layer(five, layer(five_reduce, x))]
        x = torch.cat([*branches, layer(projected, pool_by_loops(x, 1, 1))], 1)
    return x


@torch.no_grad()
def test_the_output_is_that_of_caffe_s_definition_written_out(network: GoogLeNet) -> None:
    x = pixels(70, n=2)
    torch.testing.assert_close(network(x), reference(network.state_dict(), x), atol=1e-3, rtol=1e-4)


@torch.no_grad()
def test_bfloat16_and_channels_last_change_only_the_rounding(network: GoogLeNet) -> None:
    x = pixels(64)
    exact = network(x)
    last = network(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, exact, atol=1e-3, rtol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(x.contiguous(memory_format=torch.channels_last)).float()
    assert F.cosine_similarity(rounded.flatten(), exact.flatten(), 0) > 0.999


def test_random_weights_keep_the_signal_and_every_layer_learns() -> None:
    torch.manual_seed(0)
    network = GoogLeNet()
    out = network(pixels(64, n=2))
    assert 1 < out.std() < 1000
    out.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in network.parameters())


def caffe_arrays(network: GoogLeNet) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Weights and biases under Caffe's own layer names, with classifiers, in the shapes of old Caffe files."""
    state = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    layers = {
        name.removesuffix(".weight").replace(".", "/"): (array, state[f"{name.removesuffix('weight')}bias"])
        for name, array in state.items()
        if name.endswith(".weight")
    }
    some = np.zeros((4, 8), np.float32), np.zeros(4, np.float32)
    return layers | {"loss1/conv": some, "loss1/fc": some, "loss2/classifier": some, "loss3/classifier": some}


JOINED = {".weight": ".bias", "/weights": "/biases", "_w": "_b", "_0": "_1", ".0": ".1", "_w_0": "_b_0"}


@pytest.mark.parametrize("weight", JOINED)
@pytest.mark.parametrize("separator", ["/", ".", "_"])
def test_caffe_s_arrays_fit_however_their_names_are_joined(network: GoogLeNet, separator: str, weight: str) -> None:
    arrays = {}
    for layer, (w, b) in caffe_arrays(network).items():
        arrays[layer.replace("/", separator) + weight] = w
        arrays[layer.replace("/", separator) + JOINED[weight]] = b.reshape(1, 1, 1, -1)
    _assert_same(from_caffe(tensors_in(arrays)), network)


def test_nested_dictionaries_and_lists_of_arrays_fit(network: GoogLeNet) -> None:
    layers = caffe_arrays(network)
    _assert_same(
        from_caffe(tensors_in({name: {"weights": w, "biases": b} for name, (w, b) in layers.items()})), network
    )
    _assert_same(from_caffe(tensors_in({name: [w, b] for name, (w, b) in layers.items()})), network)


def test_files_of_arrays_load(tmp_path: Path, network: GoogLeNet) -> None:
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    np.savez(tmp_path / "w.npz", **{name.replace(".", "/", 1): array for name, array in arrays.items()})
    torch.save(arrays, tmp_path / "w.pth")
    for name in ("w.npz", "w.pth"):
        backbone = build_backbone("googlenet", str(tmp_path / name))
        assert backbone.pretrained
        assert backbone.preprocessing.resize == 256
        _assert_same(backbone.module.state_dict(), network)


@pytest.mark.parametrize(
    ("name", "file"), [("googlenet", r"bvlc_googlenet.*\.npz"), ("bn_inception", r"bn_inception-52deb4733\.pth")]
)
def test_without_weights_one_sentence_names_the_published_file(name: str, file: str) -> None:
    with pytest.raises(UsageError, match=f"{file} .*--weights FILE.*--weights none") as caught:
        build_backbone(name)
    assert "\n" not in str(caught.value)


def _assert_same(state: Mapping[str, Tensor], network: GoogLeNet) -> None:
    expected = network.state_dict()
    assert set(state) == set(expected)
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
