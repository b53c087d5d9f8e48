import math

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, small_learner, step
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners import exemplar
from selftaught.learners.exemplar import TEMPERATURE, exemplar_loss
from selftaught.learners.nce import TEMPERATURE as NCE_TEMPERATURE
from selftaught.learners.nce import nce_scores


def units(rows: int = IMAGES, seed: int = 7) -> Tensor:
    return F.normalize(torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed)))


def test_loss_against_a_loop() -> None:
    z, classes, ids = units(5).double(), 3 * units(9, 8).double(), torch.tensor([4, 0, 8, 4, 1])
    total = 0.0
    for row, own in zip(z, ids.tolist(), strict=True):
        scores = [math.exp(float(row @ w / w.norm()) / TEMPERATURE) for w in classes]
        total -= math.log(scores[own] / sum(scores))
    assert float(exemplar_loss(z, classes, ids)) == pytest.approx(total / 5, rel=1e-9)


@pytest.mark.parametrize(("images", "expected"), [(5864, 8.676587), (59551, 10.994588)])
def test_equal_classes_cannot_be_told_apart(images: int, expected: float) -> None:
    loss = exemplar_loss(units(2).double(), torch.ones(images, 6).double(), torch.tensor([3, 9]))
    assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_images_at_right_angles_that_are_their_own_classes() -> None:
    eye = torch.eye(4, dtype=torch.float64)
    assert float(exemplar_loss(eye, eye, torch.arange(4))) == pytest.approx(math.log1p(3 * math.exp(-10)), rel=1e-9)


def test_scores_are_those_of_nce_with_all_images_as_noise() -> None:
    z, memory, ids = units(4), units(), torch.tensor([0, 5, 2, 11])
    own, everything = nce_scores(z, memory, ids, torch.arange(IMAGES))
    scores = everything * NCE_TEMPERATURE / TEMPERATURE
    expected = (scores.logsumexp(1) - own * NCE_TEMPERATURE / TEMPERATURE).mean()
    torch.testing.assert_close(exemplar_loss(z, memory, ids), expected)


def test_classes_start_as_the_embeddings_and_learn_from_then_on() -> None:
    learner = small_learner("exemplar")
    plan = learner.batches(units(), torch.Generator().manual_seed(0))
    assert sorted(plan.flatten().tolist()) == list(range(IMAGES))
    assert plan.shape == (IMAGES // BATCH, BATCH)
    assert torch.equal(learner.classes, units())
    losses = [float(step(learner, lr=0.01)) for _ in range(5)]
    assert losses[-1] < losses[0]
    learned = learner.classes.detach().clone()
    assert not torch.equal(learned, units())
    learner.batches(units(seed=9), torch.Generator().manual_seed(0))
    assert torch.equal(learner.classes, learned)


def test_classes_learn_faster_than_heads_without_decay() -> None:
    (group,) = small_learner("exemplar").extra_groups(1e-4)
    assert group["lr"] == pytest.approx(1e-2)
    assert group["weight_decay"] == 0


def test_state_restores_the_classes() -> None:
    learner, other = small_learner("exemplar"), small_learner("exemplar")
    learner.batches(units(), torch.Generator().manual_seed(0))
    step(learner)
    other.load_state_dict(learner.state_dict())
    assert bool(other.started)
    assert torch.equal(step(other), step(learner))
    assert torch.equal(other(*batch(2))["loss"], learner(*batch(2))["loss"])


def test_too_many_images_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exemplar, "MOST_IMAGES", IMAGES - 1)
    with pytest.raises(UsageError, match=f"{IMAGES} are too many: give at most {IMAGES - 1}, or use nce"):
        small_learner("exemplar")
