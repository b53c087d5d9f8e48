"""Supervised metric learning against losses written out, and its batches."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from selftaught.learners import build_learner, make_settings
from selftaught.learners.supervised import Supervised, metric_loss
from selftaught.networks import Encoder, Preprocessing
from selftaught.networks.small import SmallNetwork

pytest.importorskip("pytorch_metric_learning")
CLASSES = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])


def learner(method: str, **changes: Any) -> Supervised:
    torch.manual_seed(0)
    chosen = make_settings(method=method, dim=4, batch_size=4, neighbors=2, **changes)
    built = build_learner(Encoder(SmallNetwork(), Preprocessing(size=32)), chosen, len(CLASSES), CLASSES)
    assert isinstance(built, Supervised)
    return built


def rows() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return F.normalize(torch.randn(9, 5, dtype=torch.double)), CLASSES


def log_one_plus(exponents: list[Tensor]) -> Tensor:
    """log(1 + Σ exp)."""
    return torch.stack(exponents).exp().sum().log1p()


def test_contrastive_loss_agrees_with_a_loop() -> None:
    z, classes = rows()
    pulls, pushes = [], []
    for i in range(9):
        for j in range(9):
            d = (z[i] - z[j]).norm()
            if i != j and classes[i] == classes[j]:
                pulls.append(d)
            elif classes[i] != classes[j]:
                pushes.append((0.5 - d).clamp(min=0))

    def mean_of_those_above_zero(values: list[Tensor]) -> Tensor:
        positive = [v for v in values if v > 0]
        return torch.stack(positive).mean() if positive else torch.zeros(())

    expected = mean_of_those_above_zero(pulls) + mean_of_those_above_zero(pushes)
    assert torch.isclose(metric_loss("contrastive", 3, 5)(z, classes), expected)


def test_multi_similarity_loss_agrees_with_a_loop() -> None:
    z, classes = rows()
    s = z @ z.T
    total = torch.zeros((), dtype=torch.double)
    for i in range(9):
        same = [j for j in range(9) if j != i and classes[j] == classes[i]]
        other = [j for j in range(9) if classes[j] != classes[i]]
        hardest, easiest = max(s[i, j] for j in other), min(s[i, j] for j in same)
        positives = [s[i, j] for j in same if s[i, j] - 0.1 < hardest]
        negatives = [s[i, j] for j in other if s[i, j] + 0.1 > easiest]
        if positives:
            total += log_one_plus([-2 * (p - 0.5) for p in positives]) / 2
        if negatives:
            total += log_one_plus([50 * (n - 0.5) for n in negatives]) / 50
    assert torch.isclose(metric_loss("multi-similarity", 3, 5)(z, classes), total / 9)


def test_proxy_anchor_loss_agrees_with_a_loop() -> None:
    z, classes = rows()
    criterion = metric_loss("proxy-anchor", 3, 5).double()
    (proxies,) = criterion.parameters()
    s = z @ F.normalize(proxies).T
    pulls = [log_one_plus([-32 * (s[i, c] - 0.1) for i in range(9) if classes[i] == c]) for c in range(3)]
    pushes = [log_one_plus([32 * (s[i, c] + 0.1) for i in range(9) if classes[i] != c]) for c in range(3)]
    assert torch.isclose(criterion(z, classes), torch.stack(pulls).mean() + torch.stack(pushes).mean())


@pytest.mark.parametrize("method", ["contrastive", "multi-similarity", "proxy-anchor"])
def test_loss_reaches_backbone_and_every_head_it_trains(method: str) -> None:
    supervised = learner(method, both_heads=True).train()
    images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
    supervised(images, torch.tensor([0, 1, 3, 4]).repeat(2))["loss"].backward()
    missing = [name for name, p in supervised.named_parameters() if p.grad is None]
    assert missing == []
    assert set(supervised.network.heads) == {"f", "g"}
    assert set(learner(method).network.heads) == {"f"}


def test_embeddings_have_length_one() -> None:
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    lengths = learner("contrastive").eval().network(images)["f"].norm(dim=1)
    assert torch.allclose(lengths, torch.ones(3))


def test_batches_hold_so_many_images_of_each_class() -> None:
    plan = learner("contrastive").batches(torch.randn(9, 4), torch.Generator().manual_seed(0))
    assert plan.shape == (2, 4)
    for batch in plan:
        assert sorted(CLASSES[batch].bincount().tolist())[-2:] == [2, 2]


def test_only_proxies_are_an_extra_group_and_learn_faster() -> None:
    assert learner("contrastive").extra_groups(1e-4) == []
    (group,) = learner("proxy-anchor").extra_groups(1e-4)
    assert group["lr"] == pytest.approx(1e-2)
    assert group["params"][0].shape == (3, 4)
