import sys

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, small_learner, step
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import UsageError


def grouped(order: list[int]) -> Tensor:
    """Embeddings of twelve images in groups, image i in group order[i]."""
    noise = 0.01 * torch.randn(IMAGES, 6, generator=torch.Generator().manual_seed(0))
    return F.normalize(torch.eye(6)[order] + noise)


def naive_multi_similarity(z: Tensor, labels: Tensor) -> float:
    """α 2, β 50, λ 0.5 on the pairs that are hard by a margin of 0.1, averaged over all rows."""
    s, total = (z @ z.T).double(), 0.0
    for i in range(len(z)):
        positives = [s[i, j] for j in range(len(z)) if j != i and labels[j] == labels[i]]
        negatives = [s[i, j] for j in range(len(z)) if labels[j] != labels[i]]
        near = [p for p in positives if p - 0.1 < max(negatives)]
        far = [n for n in negatives if n + 0.1 > min(positives)]
        pull = sum((torch.exp(-2 * (p - 0.5)) for p in near), torch.zeros(()).double())
        push = sum((torch.exp(50 * (n - 0.5)) for n in far), torch.zeros(()).double())
        total += float(torch.log1p(pull) / 2 + torch.log1p(push) / 50)
    return total / len(z)


def test_pseudo_labels_follow_the_embeddings_and_batches_are_balanced_over_them() -> None:
    learner = small_learner("udml-ss", clusters=3)
    generator = torch.Generator().manual_seed(0)
    for order in ([0, 1, 2] * 4, [0] * 6 + [1] * 4 + [2] * 2):
        plan = learner.batches(grouped(order), generator)
        truth = torch.tensor(order)
        assert torch.equal(learner.labels[:, None] == learner.labels, truth[:, None] == truth)
        assert plan.shape == (3, BATCH)
        assert all(sorted(learner.labels[row].bincount().tolist())[-2:] == [2, 2] for row in plan)


def test_loss_is_multi_similarity_on_both_views_with_their_images_cluster() -> None:
    learner = small_learner("udml-ss", clusters=3).eval()
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    images, ids = batch(first_id=2)
    z = learner.network(images)["f"].detach()
    expected = naive_multi_similarity(z, learner.labels[ids])
    assert float(learner(images, ids)["loss"].detach()) == pytest.approx(expected, rel=1e-4)


def test_state_restores_the_labels() -> None:
    learner, other = small_learner("udml-ss", clusters=3), small_learner("udml-ss", clusters=3)
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other.labels, learner.labels)
    assert torch.equal(step(other), step(learner))


def test_missing_package_is_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(UsageError, match=r"pip install 'selftaught\[research\]'"):
        small_learner("udml-ss", clusters=3)
