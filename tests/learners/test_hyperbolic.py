import math

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, small_learner, step
from torch.nn import functional as F

from selftaught.learners import hyperbolic
from selftaught.learners.hyperbolic import graded_ratio_loss, hyperbolic_distance, nested_clusters


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_distances_at_angles_are_those_of_the_poincare_ball() -> None:
    angles = torch.tensor([60.0, 90.0, 180.0], dtype=torch.float64).deg2rad()
    assert hyperbolic_distance(angles.cos()).tolist() == pytest.approx([2.713889, 3.341902, 4], abs=1e-6)
    assert float(hyperbolic_distance(torch.ones(()))) == pytest.approx(0, abs=2e-3)
    x, y = math.tanh(1) * torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    ball = math.acosh(1 + 2 * float((x - y).square().sum()) / (1 - math.tanh(1) ** 2) ** 2)
    assert float(hyperbolic_distance(torch.tensor(0.6, dtype=torch.float64))) == pytest.approx(ball, rel=1e-9)


def test_loss_is_that_of_a_loop_over_all_triplets() -> None:
    z = F.normalize(torch.randn(9, 4, dtype=torch.float64, generator=seeded()))
    fine, coarse = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 3]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1])
    log = hyperbolic_distance(z @ z.T).log()
    terms = [
        (log[a, p] - log[a, q] + 0.1 * (1 if coarse[a] == coarse[q] else 2) * math.log(10)) ** 2
        for a in range(9)
        for p in range(9)
        for q in range(9)
        if a != p and fine[a] == fine[p] and fine[a] != fine[q]
    ]
    assert float(graded_ratio_loss(z, fine, coarse)) == pytest.approx(float(sum(terms) / len(terms)), rel=1e-9)


@pytest.mark.parametrize(("same_coarse", "gap"), [(True, 0.230259), (False, 0.460517)])
def test_loss_is_zero_at_the_ratio_of_its_level(same_coarse: bool, gap: float) -> None:
    def at(distance: float) -> float:
        return math.acos(1 - (math.cosh(distance) - 1) / math.sinh(2) ** 2)

    # Two at distance 1, and a third at the given ratio from the first; only what the first sees is looked at.
    angles = torch.tensor([0.0, at(1.0), -at(math.exp(gap))], dtype=torch.float64)
    z = torch.stack([angles.cos(), angles.sin()], 1)
    log = hyperbolic_distance(z @ z.T).log()
    assert float(log[0, 2] - log[0, 1]) == pytest.approx(gap, abs=1e-6)
    fine, coarse = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0 if same_coarse else 1])
    only = float(log[1, 0] - log[1, 2] + gap) ** 2  # the other one's view of it
    assert float(graded_ratio_loss(z, fine, coarse)) == pytest.approx(only / 2, abs=1e-6)


def test_equal_rows_and_a_batch_of_one_cluster_have_finite_gradients() -> None:
    z = F.normalize(torch.ones(4, 3)).requires_grad_()
    for fine in (torch.tensor([0, 0, 1, 1]), torch.zeros(4, dtype=torch.long)):
        graded_ratio_loss(z, fine, fine).backward()
        assert z.grad is not None
        assert bool(z.grad.isfinite().all())


@pytest.mark.parametrize("most", [hyperbolic.MOST_LINKED, 3])
def test_clusters_are_nested(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(hyperbolic, "MOST_LINKED", most)
    points = torch.tensor([0.0, 1, 10, 11, 100, 101, 110, 111])[:, None]
    fine, coarse = nested_clusters(points, 4, seeded())
    pairs, fours = torch.arange(8) // 2, torch.arange(8) // 4
    assert torch.equal(fine[:, None] == fine, pairs[:, None] == pairs)
    assert torch.equal(coarse[:, None] == coarse, fours[:, None] == fours)


def test_batches_are_balanced_over_fine_clusters_and_state_restores_them() -> None:
    learner, other = small_learner("hyperbolic", clusters=4), small_learner("hyperbolic", clusters=4)
    groups = torch.arange(IMAGES) % 4
    noise = 0.01 * torch.randn(IMAGES, 6, generator=seeded())
    plan = learner.batches(F.normalize(torch.eye(6)[groups] + noise), seeded())
    assert torch.equal(learner.fine[:, None] == learner.fine, groups[:, None] == groups)
    assert len(learner.coarse.unique()) == 2
    assert plan.shape == (3, BATCH)
    assert all(sorted(learner.fine[row].bincount().tolist())[-2:] == [2, 2] for row in plan)
    other.load_state_dict(learner.state_dict())
    assert torch.equal(step(other), step(learner))


def test_steps_lower_the_loss_of_their_batch() -> None:
    learner = small_learner("hyperbolic", clusters=4, freeze_batch_norm=True)
    learner.fine.copy_(torch.arange(IMAGES) // 2)
    learner.coarse.copy_(torch.arange(IMAGES) // 4)
    losses = [float(step(learner, lr=0.01)) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert bool(learner(*batch())["loss"].isfinite())
