import math
from typing import Any

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, step
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners import abier, build_learner, make_settings
from selftaught.learners.abier import boosted_losses, weight_bound
from selftaught.networks import Encoder, Preprocessing, part_sizes
from selftaught.networks.model import boosted_head
from selftaught.networks.small import SmallNetwork

CLASSES = torch.arange(IMAGES) % 3


def small_abier() -> Any:
    """Of type Any, so that tests may look into its modules."""
    torch.manual_seed(0)
    chosen = make_settings(method="abier", dim=8, batch_size=BATCH, neighbors=2)
    return build_learner(Encoder(SmallNetwork(), Preprocessing(size=32)), chosen, IMAGES, CLASSES).train()


def naive_losses(z: Tensor, sizes: tuple[int, ...], classes: Tensor) -> list[float]:
    n = len(z)
    pairs = [(i, j) for i in range(n) for j in range(n)]
    positives = sum(bool(classes[i] == classes[j]) for i, j in pairs)
    weight, known = dict.fromkeys(pairs, 1.0), dict.fromkeys(pairs, 0.5)
    losses = []
    for part in z.split(list(sizes), 1):
        total = 0.0
        for i, j in pairs:
            same = bool(classes[i] == classes[j])
            act = 2 * (float(F.cosine_similarity(part[i], part[j], 0)) - 0.5) * (1 if same else -25)
            share = 0 if i == j else 1 / positives if same else 1 / (n * n - positives)
            total += weight[i, j] * share * math.log1p(math.exp(-act))
            known[i, j] += 0.06 * act
            weight[i, j] = (1 if same else 2) / (1 + math.exp(known[i, j]))
        losses.append(total / len(sizes))
    return losses


def test_losses_of_two_parts_have_the_known_values() -> None:
    a, b = torch.eye(2, dtype=torch.float64)
    z = torch.cat([torch.stack([a, a, b, b]), torch.stack([a, b, a, b])], 1)
    losses = [float(loss) for loss in boosted_losses(z, (2, 2), torch.tensor([0, 0, 1, 1]))]
    assert losses == pytest.approx([0.0783154, 1.6093948], abs=1e-6)
    assert sum(losses) == pytest.approx(1.6877102, abs=1e-6)


def test_losses_against_a_loop() -> None:
    z, classes = torch.randn(6, 9, dtype=torch.float64), torch.tensor([0, 1, 0, 2, 2, 1])
    losses = [float(loss) for loss in boosted_losses(z, (2, 3, 4), classes)]
    assert losses == pytest.approx(naive_losses(z, (2, 3, 4), classes), rel=1e-9)


def test_a_batch_of_one_class_has_a_finite_loss() -> None:
    losses = boosted_losses(torch.randn(4, 3), (1, 2), torch.zeros(4, dtype=torch.long))
    assert bool(torch.stack(losses).isfinite().all())


@pytest.mark.parametrize(("dim", "sizes"), [(512, (96, 160, 256)), (8, (2, 2, 4)), (3, (1, 1, 1))])
def test_parts_grow_and_fill_the_embedding(dim: int, sizes: tuple[int, ...]) -> None:
    assert part_sizes(dim) == sizes
    with pytest.raises(UsageError, match="dim 2 cannot be split into three parts"):
        part_sizes(2)


def test_cosine_of_saved_vectors_weighs_parts_by_the_square_of_their_share() -> None:
    head = boosted_head(10, 16)
    one, other = head(torch.randn(2, 10)).detach()
    parts = list(zip(one.split([3, 5, 8]), other.split([3, 5, 8]), strict=True))
    cosines = [F.cosine_similarity(a, b, 0) for a, b in parts]
    squares = [(size / 16) ** 2 for size in (3, 5, 8)]
    expected = sum(square * float(cosine) for square, cosine in zip(squares, cosines, strict=True))
    assert float(one @ other) == pytest.approx(expected, rel=1e-5)
    assert float(one.norm()) == pytest.approx(math.sqrt(sum(squares)), rel=1e-5)


def test_regressors_find_what_parts_share_and_the_head_hides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abier, "BOUND", 0.0)
    learner = small_abier()
    features = torch.randn(5, learner.network.encoder.features)
    layer, regressor = learner.network.heads["f"][0], learner.regressors[0][0]
    u = F.linear(features, layer.weight).split(list(learner.sizes), 1)
    pairs = zip([(0, 1), (0, 2), (1, 2)], learner.regressors, strict=True)
    found = torch.stack([(u[i] * r(u[j])).square().mean() for (i, j), r in pairs]).sum()
    loss = learner.adversarial_loss(features)
    torch.testing.assert_close(loss, -found)
    plain = torch.autograd.grad(found, [layer.weight, regressor.weight])
    learned = torch.autograd.grad(loss, [layer.weight, regressor.weight])
    torch.testing.assert_close(learned[0], plain[0])
    torch.testing.assert_close(learned[1], -plain[1])


def test_weights_are_bounded_by_their_sums_of_squares_per_input() -> None:
    weight = torch.tensor([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]])
    assert float(weight_bound(weight)) == ((2 - 1) ** 2 + (5 - 1) ** 2) / 2


def test_the_network_below_the_head_learns_nothing_from_adversaries() -> None:
    learner = small_abier().eval()
    images, ids = batch()
    encoder = list(learner.network.encoder.parameters())
    gradients = torch.autograd.grad(learner(images, ids)["independence"], encoder, allow_unused=True)
    assert all(gradient is None for gradient in gradients)


def test_steps_lower_the_boosted_loss_and_state_is_restored() -> None:
    learner, other = small_abier(), small_abier()
    before = float(learner(*batch())["boosted"].detach())
    for _ in range(5):
        step(learner, lr=1e-3)
    assert float(learner(*batch())["boosted"].detach()) < before
    other.load_state_dict(learner.state_dict())
    assert torch.equal(step(other), step(learner))


def test_batches_are_balanced_over_classes() -> None:
    plan = small_abier().batches(torch.empty(0), torch.Generator().manual_seed(0))
    assert plan.shape == (3, BATCH)
    assert all(sorted(CLASSES[row].bincount().tolist())[-2:] == [2, 2] for row in plan)
