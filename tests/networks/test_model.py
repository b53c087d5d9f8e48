from typing import Any

import pytest
import torch
from torch import Tensor, nn

from selftaught.networks import EmbeddingNetwork, Encoder, Preprocessing, linear_head, parameter_groups, pool
from selftaught.networks.model import HEADS, projector_head
from selftaught.networks.small import SmallNetwork

INPUT = Preprocessing(size=32)


def images(n: int = 3) -> Tensor:
    return torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_preprocessing_orders_scales_and_normalizes() -> None:
    pixel = torch.tensor([10, 20, 30], dtype=torch.uint8).view(1, 3, 1, 1)
    caffe = Preprocessing(size=227, mean=(104, 117, 128), std=(1, 1, 1), channels="BGR", value_range=255)
    assert caffe(pixel).flatten().tolist() == [30 - 104, 20 - 117, 10 - 128]
    plain = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    assert plain(pixel).flatten().tolist() == pytest.approx([(v / 255 - 0.5) / 0.25 for v in (10, 20, 30)])


def test_preprocessing_refuses_what_cannot_be_meant() -> None:
    wrongs: list[dict[str, Any]] = [{"channels": "RBG"}, {"size": 0}, {"std": (1, 1, 0)}, {"mean": (1,)}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"channels|preprocessing"):
            Preprocessing(**wrong)


def test_features_are_average_plus_maximum_pooled() -> None:
    encoder = Encoder(nn.Conv2d(3, 5, 3), INPUT).eval()
    x = images()
    feature_map = encoder.backbone(INPUT(x))
    torch.testing.assert_close(encoder(x), feature_map.mean((2, 3)) + feature_map.amax((2, 3)), rtol=1e-4, atol=1e-5)
    assert encoder.features == 5


def test_a_backbone_that_gives_vectors_is_used_as_it_is() -> None:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 7))
    encoder = Encoder(backbone, INPUT)
    torch.testing.assert_close(encoder(images()), backbone(INPUT(images())), rtol=1e-4, atol=1e-5)


def test_a_backbone_that_gives_neither_is_refused() -> None:
    with pytest.raises(ValueError, match="dimensions"):
        Encoder(nn.Unflatten(3, (4, 8)), INPUT)
    with pytest.raises(ValueError, match="does not map"):
        Encoder(nn.Linear(5, 5), INPUT)


def test_frozen_batch_norm_neither_learns_nor_counts() -> None:
    encoder = Encoder(SmallNetwork(), INPUT, freeze_batch_norm=True).train()
    norms = [m for m in encoder.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    before = [m.running_mean.clone() for m in norms if m.running_mean is not None]
    encoder(images()).sum().backward()
    assert all(not m.training and m.weight.grad is None for m in norms)
    assert all(torch.equal(a, m.running_mean) for a, m in zip(before, norms, strict=True) if m.running_mean is not None)
    free = Encoder(SmallNetwork(), INPUT).train()
    free(images()).sum().backward()
    assert all(m.training and m.weight.grad is not None for m in free.modules() if isinstance(m, nn.BatchNorm2d))


def test_heads_are_orthogonal_without_bias_and_stay_in_float32_under_autocast() -> None:
    head = linear_head(6, 4)
    torch.testing.assert_close(head.weight @ head.weight.T, torch.eye(4))
    assert not head.bias.any()
    network = EmbeddingNetwork(Encoder(SmallNetwork(), INPUT), {"f": linear_head(256, 4), "g": linear_head(256, 256)})
    with torch.autocast("cpu", torch.bfloat16):
        out = network.eval()(images())
    assert {name: z.dtype for name, z in out.items()} == {"f": torch.float32, "g": torch.float32}
    exact = network(images())
    torch.testing.assert_close(out["g"], exact["g"], atol=0.1, rtol=0.1)


def test_projector_has_orthogonal_layers_and_its_batch_norm_learns_beside_a_frozen_backbones() -> None:
    head: Any = projector_head(6, 4)
    first, norm, _, last = head
    assert (first.weight.shape, last.weight.shape) == ((12, 6), (4, 12))
    torch.testing.assert_close(first.weight.T @ first.weight, torch.eye(6))
    torch.testing.assert_close(last.weight @ last.weight.T, torch.eye(4))
    network = EmbeddingNetwork(Encoder(nn.Conv2d(3, 6, 3), INPUT, freeze_batch_norm=True), {"f": head}).train()
    network(images())["f"].square().sum().backward()
    assert norm.weight.grad is not None
    assert bool(norm.running_mean.any())


def test_every_kind_of_head_can_be_built_again_from_its_state() -> None:
    for kind, build in HEADS.items():
        head, again = build(8, 8), build(8, 8)
        head(torch.randn(5, 8))  # batch norm has seen something
        again.load_state_dict(head.state_dict())
        x = torch.randn(3, 8)
        assert torch.equal(again.eval()(x), head.eval()(x)), kind


def test_backbone_and_heads_have_their_own_learning_rates() -> None:
    network = EmbeddingNetwork(Encoder(SmallNetwork(), INPUT, freeze_batch_norm=True), {"f": linear_head(256, 4)})
    backbone, heads = parameter_groups(network, 0.1, 0.2)
    assert (backbone["lr"], heads["lr"]) == (0.1, 0.2)
    assert len(backbone["params"]) == 4
    assert len(heads["params"]) == 2


def test_average_pooling_alone_leaves_the_maximum_out() -> None:
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    layer = nn.Conv2d(3, 6, 3)
    average, both = (Encoder(layer, INPUT, pooling=pooling).eval() for pooling in ("avg", "avg+max"))
    x = layer(INPUT(images))
    torch.testing.assert_close(average(images), x.mean((2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(both(images), x.mean((2, 3)) + x.amax((2, 3)), rtol=1e-4, atol=1e-5)


def test_the_generalized_mean_lies_between_average_and_maximum_and_learns_from_channels_that_are_zero() -> None:
    x = torch.rand(2, 5, 4, 4)
    x[:, 0] = 0
    x.requires_grad_()
    z = pool(x, "gem")
    torch.testing.assert_close(z[:, 1:], (x[:, 1:] ** 3).mean((2, 3)) ** (1 / 3))
    assert (pool(x, "avg")[:, 1:] < z[:, 1:]).all()
    assert (z[:, 1:] < x[:, 1:].amax((2, 3))).all()
    assert (z[:, 0] < 1e-5).all()
    z.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
