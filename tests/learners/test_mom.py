import math
from typing import Any

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, small_learner
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import SelftaughtError
from selftaught.learners.manifold import ALPHA, diffuse, mine, neighbor_graph
from selftaught.learners.mom import weighted_triplet_loss


def ring(latitude: float, count: int = 36) -> Tensor:
    """Unit vectors every so many degrees around a parallel."""
    angles = torch.arange(count, dtype=torch.float64) * 2 * math.pi / count
    north = math.radians(latitude)
    height = torch.full_like(angles, math.sin(north))
    return torch.stack([angles.cos() * math.cos(north), angles.sin() * math.cos(north), height], 1)


def normalized(weights: Tensor) -> Tensor:
    scale = weights.sum(1).rsqrt()
    return (scale[:, None] * weights * scale).to_sparse().coalesce()


def test_diffusion_on_a_chain_has_the_closed_form() -> None:
    weights = torch.zeros(4, 4, dtype=torch.float64)
    for i, j in ((0, 1), (1, 0), (1, 2), (2, 1), (3, 3)):
        weights[i, j] = 1
    f = diffuse(normalized(weights), torch.tensor([0]))[:, 0]
    assert f[:3].tolist() == pytest.approx([25.625628, 35.177674, 24.625628], abs=1e-5)
    assert float(f[3]) == 0, "out of reach"
    a = ALPHA / math.sqrt(2)
    assert float(f[1]) == pytest.approx(a / (1 - 2 * a * a), rel=1e-9)


def test_diffusion_on_a_ring_has_the_closed_form() -> None:
    graph = neighbor_graph(ring(0), 3)
    f = diffuse(graph, torch.tensor([0, 5]))
    q = math.sqrt(1 - ALPHA**2)
    x = (1 - q) / ALPHA
    expected = [(x**j + x ** (36 - j)) / ((1 - x**36) * q) for j in range(4)]
    assert expected == pytest.approx([7.174691, 6.237062, 5.425434, 4.723410], abs=1e-6)
    assert f[:4, 0].tolist() == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(f[:, 1].roll(-5), f[:, 0])


def test_graph_links_those_that_name_each_other() -> None:
    v = F.normalize(torch.randn(15, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    s, k = v @ v.T, 5
    expected = torch.zeros(15, 15, dtype=torch.float64)
    named = [set(s[i].topk(k).indices.tolist()) for i in range(15)]
    for i in range(15):
        for j in named[i]:
            if i != j and i in named[j]:
                expected[i, j] = max(0, float(s[i, j])) ** 3
    degrees = expected.sum(1)
    scale = torch.where(degrees > 0, degrees, 1).rsqrt()
    torch.testing.assert_close(neighbor_graph(v, k).to_dense(), scale[:, None] * expected * scale)


def test_pools_of_two_rings_are_along_the_own_and_across_to_the_other() -> None:
    points = torch.cat([ring(0), ring(15)])
    graph = neighbor_graph(points, 3).to_dense()
    assert not graph[:36, 36:].any()
    near = mine(points, 3, near=5, far=5, most=5)
    far = mine(points, 3, near=6, far=6, most=6)
    for i in range(72):
        own, place = i // 36 * 36, i % 36
        seconds = {own + (place + 2) % 36, own + (place - 2) % 36}
        across = {36 - own + (place + step) % 36 for step in (-1, 0, 1)}
        assert {int(j) for j in near.positives[i] if j >= 0} == seconds
        assert {int(j) for j in far.negatives[i] if j >= 0} == across
        assert (near.weights[i, :2] > 0).all()
        assert (near.weights[i, 2:] == 0).all()


def test_loss_of_one_triplet() -> None:
    angles = [0.0, 2 * math.asin(math.sqrt(0.2) / 2), 2 * math.asin(math.sqrt(0.4) / 2)]
    rows = torch.tensor([[[math.cos(a), math.sin(a)] for a in angles]], dtype=torch.float64)
    assert float(weighted_triplet_loss(rows, torch.tensor([3.0]), 0.5)) == pytest.approx(0.9)
    assert float(weighted_triplet_loss(rows, torch.tensor([3.0]), 0.1)) == 0


def prepared() -> tuple[Any, Tensor]:
    learner = small_learner("mom")
    features = F.normalize(torch.rand(IMAGES, learner.network.encoder.features))
    return learner, learner.batches(features, torch.Generator().manual_seed(0))


def test_batches_are_triplets_from_the_pools_that_are_mined_once() -> None:
    learner, plan = prepared()
    assert plan.shape == (IMAGES // BATCH, BATCH // 3 * 3)
    for anchor, positive, negative in plan.view(-1, 3).tolist():
        assert positive in learner.positives[anchor].tolist()
        assert negative in learner.negatives[anchor].tolist()
        assert len({anchor, positive, negative}) == 3
    torch.testing.assert_close(learner.weights[learner.positives >= 0].mean(), torch.tensor(1.0))
    before = learner.positives.clone()
    other = F.normalize(torch.rand(IMAGES, learner.network.encoder.features))
    assert not torch.equal(learner.batches(other, torch.Generator().manual_seed(1)), plan)
    assert torch.equal(learner.positives, before)


def test_learners_loss_against_a_loop_over_both_views() -> None:
    learner, plan = prepared()
    learner.eval()
    ids = plan[0].repeat(2)
    images = batch()[0][torch.arange(len(ids))]
    z = learner.network(images)["f"].detach()
    total = 0.0
    for start in range(0, len(ids), 3):
        a, p, n = z[start : start + 3]
        pool = learner.positives[ids[start]].tolist()
        weight = float(learner.weights[ids[start], pool.index(int(ids[start + 1]))])
        total += weight * max(0.0, 0.5 + float((a - p).square().sum() - (a - n).square().sum()))
    loss = learner(images, ids)["loss"]
    assert float(loss.detach()) == pytest.approx(total / (len(ids) // 3), rel=1e-4)
    assert float(loss.detach()) > 0


def test_state_restores_the_pools() -> None:
    learner, _ = prepared()
    other = small_learner("mom")
    other.load_state_dict(learner.state_dict())
    assert bool(other.mined)
    assert torch.equal(other.negatives, learner.negatives)


def test_images_without_anything_to_mine_are_one_sentence() -> None:
    learner = small_learner("mom")
    equal = torch.ones(IMAGES, learner.network.encoder.features)
    for mined in (False, True):  # the pools are empty
        learner.mined.fill_(mined)
        with pytest.raises(SelftaughtError, match="MOM finds nothing to learn"):
            learner.batches(equal, torch.Generator().manual_seed(0))
