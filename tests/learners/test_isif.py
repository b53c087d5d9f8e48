import math

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, small_learner, step
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners.isif import TEMPERATURE, instance_softmax_loss, partner_batches


def naive(first: Tensor, second: Tensor) -> float:
    first, second = first.double(), second.double()
    n = len(first)

    def probability(i: int, z: Tensor) -> float:
        scores = [math.exp(float(first[k] @ z) / TEMPERATURE) for k in range(n)]
        return scores[i] / sum(scores)

    total = 0.0
    for i in range(n):
        total -= math.log(probability(i, second[i]))
        total -= sum(math.log(1 - probability(i, first[j])) for j in range(n) if j != i)
    return total / n


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_loss_against_a_loop(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    first, second = (F.normalize(torch.randn(7, 5, dtype=torch.float64)).to(dtype) for _ in range(2))
    full = second.to(torch.promote_types(dtype, torch.float32))
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    assert float(instance_softmax_loss(first, full)) == pytest.approx(naive(first, second), rel=tolerance)


def test_copies_of_one_image_in_a_batch_give_a_finite_gradient() -> None:
    z = F.normalize(torch.ones(3, 4)).requires_grad_()
    instance_softmax_loss(z, z).backward()
    assert z.grad is not None
    assert bool(torch.isfinite(z.grad).all())


def test_learner_is_symmetric_in_the_two_views() -> None:
    isif = small_learner("isif").eval()
    images, ids = batch()
    swapped = torch.cat([images[BATCH:], images[:BATCH]])
    torch.testing.assert_close(isif(images, ids)["loss"], isif(swapped, ids)["loss"])
    first, second = isif.network(images)["f"].detach().chunk(2)
    expected = (naive(first, second) + naive(second, first)) / 2
    assert float(isif(images, ids)["loss"].detach()) == pytest.approx(expected, rel=1e-4)


def test_partners_are_the_nearest_image_or_as_often_the_image_itself() -> None:
    angles = torch.arange(400) // 2 * 0.015 + torch.arange(400) % 2 * 0.001  # pairs of neighbors
    features = torch.stack([angles.cos(), angles.sin()], 1)
    plan = partner_batches(features, 8, torch.Generator().manual_seed(0))
    assert plan.shape == (50, 8)
    images, partners = plan.view(-1, 2).T
    assert len(images.unique()) == 200
    own = images == partners
    assert torch.equal(partners[~own], images[~own] ^ 1)
    assert 70 < int(own.sum()) < 130


def test_loss_with_partners_pairs_views_of_an_image_with_those_of_its_partner() -> None:
    isif = small_learner("isif", partner="neighbor").eval()
    images, ids = batch()
    a, b = isif.network(images)["f"].detach().view(2, BATCH // 2, 2, -1).unbind(0)
    sets = [(a[:, 0], b[:, 1]), (b[:, 0], a[:, 1])]
    expected = sum(naive(x, y) + naive(y, x) for x, y in sets) / 4
    assert float(isif(images, ids)["loss"].detach()) == pytest.approx(expected, rel=1e-4)
    assert isif.batch_head == "pooled"
    features = F.normalize(torch.randn(IMAGES, isif.network.encoder.features))
    assert isif.batches(features, torch.Generator().manual_seed(0)).shape == (3, BATCH)
    with pytest.raises(UsageError, match="needs an even batch_size, but it is 9"):
        small_learner("isif", partner="neighbor", batch_size=9, neighbors=3)


def test_steps_lower_the_loss_of_their_batch() -> None:
    isif = small_learner("isif", freeze_batch_norm=True)
    losses = [float(step(isif, lr=0.01)) for _ in range(5)]
    assert losses[-1] < losses[0]
