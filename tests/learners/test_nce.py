import math
from typing import Any

import pytest
import torch
from small_learner import IMAGES, batch, small_learner, step
from torch import Tensor
from torch.nn import functional as F

from selftaught.learners.nce import TEMPERATURE, nce_loss, nce_scores


def units() -> Tensor:
    return F.normalize(torch.randn(IMAGES, 6, generator=torch.Generator().manual_seed(7)))


def started(*, freeze_batch_norm: bool = False) -> Any:
    """A learner before its first step, with the embeddings of all images in memory."""
    learner = small_learner("nce", freeze_batch_norm=freeze_batch_norm)
    learner.batches(units(), torch.Generator().manual_seed(0))
    return learner


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_loss_against_a_loop(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    z = F.normalize(torch.randn(6, 8, dtype=torch.float64)).to(dtype)
    memory = F.normalize(torch.randn(20, 8, dtype=torch.float64))
    ids, noise, z_constant = torch.tensor([3, 7, 1, 3, 7, 1]), torch.randint(20, (9,)), 50.0
    total = 0.0
    for row, i in zip(z.double(), ids.tolist(), strict=True):

        def is_own(slot: int, row: torch.Tensor = row) -> float:
            p = math.exp(float(row @ memory[slot]) / TEMPERATURE) / z_constant
            return p / (p + 9 / 20)

        total -= math.log(is_own(i)) + sum(math.log(1 - is_own(j)) for j in noise.tolist())
    if dtype != torch.float64:
        memory = memory.float()
    scores = nce_scores(z, memory, ids, noise)
    loss = nce_loss(*scores, torch.tensor(z_constant, dtype=memory.dtype), 20)
    assert float(loss) == pytest.approx(total / 6, rel=1e-6 if dtype == torch.float64 else 1e-4)


def test_memory_starts_from_the_embeddings_and_is_its_own_from_the_first_step_on() -> None:
    nce = started()
    assert torch.equal(nce.memory, units())
    step(nce)
    learned = nce.memory.clone()
    nce.batches(units(), torch.Generator().manual_seed(0))
    assert torch.equal(nce.memory, learned)
    torch.testing.assert_close(learned.norm(dim=1), torch.ones(IMAGES))


def test_positive_of_a_row_is_the_slot_of_its_image() -> None:
    nce = started()
    z = nce.memory[[2, 5]]
    own, _ = nce_scores(z, nce.memory, torch.tensor([2, 5]), torch.arange(IMAGES))
    torch.testing.assert_close(own, torch.full((2,), 1 / TEMPERATURE))
    assert nce.noise == IMAGES - 1


def test_constant_is_estimated_on_the_first_batch_and_then_fixed() -> None:
    nce = started()
    assert float(nce.constant) == 0
    torch.manual_seed(3)
    z, ids = nce.eval().network(batch()[0])["f"], batch()[1]
    drawn = torch.randint(IMAGES, (nce.noise,))
    own, noise = nce_scores(z, nce.memory, ids, drawn)
    expected = torch.cat([own[:, None], noise], 1).exp().mean() * IMAGES
    torch.manual_seed(3)
    loss = nce(*batch())["loss"]
    torch.testing.assert_close(nce.constant, expected.detach())
    torch.testing.assert_close(loss, nce_loss(own, noise, expected.detach(), IMAGES))
    nce(*batch(seed=2))
    torch.testing.assert_close(nce.constant, expected.detach())


def test_after_a_step_the_slots_of_its_images_move_half_way_to_the_mean_of_their_views() -> None:
    nce = started(freeze_batch_norm=True)
    before, ids = nce.memory.clone(), batch(first_id=5)[1]
    z = nce.network(batch()[0])["f"].detach()
    step(nce, first_id=5)
    for image in range(IMAGES):
        rows = (ids == image).nonzero()[:, 0]
        expected = F.normalize(before[image] / 2 + z[rows].mean(0) / 2, dim=0) if len(rows) else before[image]
        torch.testing.assert_close(nce.memory[image], expected)


def test_memory_is_not_changed_before_the_step_and_takes_no_gradient() -> None:
    nce = started()
    before = nce.memory.clone()
    nce(*batch())["loss"].backward()
    assert torch.equal(nce.memory, before)
    assert not nce.memory.requires_grad
    assert all(p.grad is not None for p in nce.network.parameters())


def test_a_step_brings_a_row_nearer_to_its_own_slot() -> None:
    nce = started(freeze_batch_norm=True)
    images, ids = batch()

    def own() -> float:
        return float((nce.network(images)["f"].detach() * nce.memory[ids]).sum(1).mean())

    start = own()
    step(nce)
    assert own() > start


def test_state_restores_memory_and_constant() -> None:
    nce, other = started(), small_learner("nce")
    step(nce), step(nce, 2, first_id=4)
    other.load_state_dict(nce.state_dict())
    assert torch.equal(other.memory, nce.memory)
    assert float(other.constant) == float(nce.constant) > 0
    torch.manual_seed(0)
    expected = step(nce, 3)
    torch.manual_seed(0)
    assert torch.equal(step(other, 3), expected)
