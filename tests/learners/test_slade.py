"""SLADE against its formulas written out as loops, and its state from step to step."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners import build_learner, make_settings
from selftaught.learners.slade import basis_similarity, distribution_loss, pair_moments, sure_pairs
from selftaught.networks import Encoder, Preprocessing
from selftaught.networks.small import SmallNetwork

pytest.importorskip("pytorch_metric_learning")
CLASSES = torch.tensor([0, 0, 0, 1, 1, 1] + [-1] * 10)


def learner(classes: Tensor = CLASSES, **changes: Any) -> Any:
    torch.manual_seed(0)
    chosen = make_settings(method="slade", **{"dim": 4, "batch_size": 8, "neighbors": 2, "clusters": 3} | changes)
    encoder = Encoder(SmallNetwork(), Preprocessing(size=32))
    return build_learner(encoder, chosen, len(classes), classes.clone()).double()


def points(seed: int = 0, n: int = len(CLASSES)) -> Tensor:
    return F.normalize(torch.randn(n, 4, dtype=torch.double, generator=torch.Generator().manual_seed(seed)))


def begun(**changes: Any) -> tuple[Any, Tensor]:
    """A learner that has clustered, and its batches."""
    built = learner(**changes)
    return built, built.batches(points(), torch.Generator().manual_seed(0))


def test_similarity_is_that_of_the_scores_with_the_basis() -> None:
    rows = torch.tensor([[0.6, 0.8, 0.0], [0.6, 0.0, 0.8], [0.0, 1.0, 0.0]])
    one, two = torch.eye(3)[:1], torch.eye(3)[:2]
    assert basis_similarity(rows, one)[0].tolist() == pytest.approx([1, 1, 0]), "the basis sees one direction only"
    assert basis_similarity(rows, two)[0].tolist() == pytest.approx([1, 0.6, 0.8])
    torch.testing.assert_close(basis_similarity(rows, 7 * two), basis_similarity(rows, two))


def test_moments_are_those_of_the_chosen_pairs() -> None:
    similarity, pairs = torch.rand(5, 5, dtype=torch.double), torch.rand(5, 5) > 0.5
    chosen = similarity[pairs]
    expected = torch.stack([chosen.mean(), chosen.var(correction=0)])
    torch.testing.assert_close(pair_moments(similarity, pairs), expected)
    assert pair_moments(similarity, torch.zeros_like(pairs)).tolist() == [0, 0]


@pytest.mark.parametrize(("positive", "negative", "expected"), [(0.9, 0.1, 0.03), (0.4, 0.3, 0.43), (0.0, 0.5, 1.03)])
def test_distributions_are_pushed_apart_up_to_the_margin_and_narrowed(
    positive: float, negative: float, expected: float
) -> None:
    moments = torch.tensor([[positive, 0.01], [negative, 0.02]])
    assert float(distribution_loss(moments)) == pytest.approx(expected)


def test_images_that_all_have_labels_are_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="all images of --unlabeled are among those of --labeled"):
        learner(torch.arange(16) // 4)


def test_no_pair_is_sure_while_the_distributions_are_the_wrong_way_round() -> None:
    similarity = torch.linspace(-1, 1, 9)
    positive, negative = sure_pairs(similarity, torch.tensor(0.5), torch.tensor(-0.25))
    assert positive.tolist() == [False] * 6 + [True] * 3
    assert negative.tolist() == [True] * 4 + [False] * 5
    assert not torch.stack(sure_pairs(similarity, torch.tensor(0.1), torch.tensor(0.1))).any()


def test_before_the_first_epoch_clusters_become_classes_and_class_means_basis_vectors() -> None:
    slade, _ = begun()
    assert slade.classes[:6].tolist() == CLASSES[:6].tolist()
    assert set(slade.classes[6:].tolist()) == {2, 3, 4}
    means = torch.stack([points()[:3].mean(0), points()[3:6].mean(0)])
    torch.testing.assert_close(slade.basis.detach(), F.normalize(means))
    classes, basis = slade.classes.clone(), slade.basis.detach().clone()
    slade.batches(points(1), torch.Generator().manual_seed(1))
    assert torch.equal(slade.classes, classes), "once"
    assert torch.equal(slade.basis, basis)


@pytest.mark.parametrize(("batch_size", "labeled"), [(8, 4), (6, 2), (16, 8)])
def test_half_of_a_batch_has_labels(batch_size: int, labeled: int) -> None:
    _, plan = begun(batch_size=batch_size)
    assert plan.shape == (16 // batch_size, batch_size)
    assert (plan[:, :labeled] < 6).all()
    assert (plan[:, labeled:] >= 6).all()


def log_one_plus(exponents: list[Tensor]) -> Tensor:
    return torch.stack(exponents).exp().sum().log1p() if exponents else torch.zeros(())


def ranked(z: Tensor, positives: set[tuple[int, int]], negatives: set[tuple[int, int]]) -> float:
    """The multi-similarity loss of these pairs, by a loop."""
    s, total = z @ z.T, 0.0
    for i in range(len(z)):
        total += float(log_one_plus([-2 * (s[i, j] - 0.5) for j in range(len(z)) if (i, j) in positives])) / 2
        total += float(log_one_plus([50 * (s[i, j] - 0.5) for j in range(len(z)) if (i, j) in negatives])) / 50
    return total / len(z)


def test_losses_against_loops() -> None:
    slade, plan = begun()
    ids = plan[0].repeat(2)
    z = points(7, len(ids))
    losses = slade.loss({"f": z}, ids)

    known, guessed = ids < 6, ids >= 6
    labeled = slade.criterion(z[known], slade.classes[ids[known]])
    assert float(losses["labeled"]) == pytest.approx(float(labeled))
    scores = z[known] @ slade.basis.detach().T / 0.1
    named = float(F.cross_entropy(scores, slade.classes[ids[known]]))

    rows, of, clusters = z[guessed], ids[guessed].tolist(), slade.classes[ids[guessed]].tolist()
    s = basis_similarity(rows, slade.basis.detach())
    every = [(i, j) for i in range(len(of)) for j in range(len(of)) if of[i] != of[j]]
    within = torch.stack([s[i, j] for i, j in every if clusters[i] == clusters[j]])
    across = torch.stack([s[i, j] for i, j in every if clusters[i] != clusters[j]])
    apart = max(0.0, float(across.mean() - within.mean()) + 0.5)
    apart += float(within.var(correction=0) + across.var(correction=0))
    assert float(losses["basis"].detach()) == pytest.approx(named + apart)

    views = {(i, j) for i in range(len(of)) for j in range(len(of)) if of[i] == of[j] and i != j}
    sure = bool(within.mean() > across.mean())
    positives = views | {(i, j) for i, j in every if sure and s[i, j] >= within.mean()}
    negatives = {(i, j) for i, j in every if sure and s[i, j] <= across.mean()}
    assert sure == bool(negatives)
    assert float(losses["unlabeled"]) == pytest.approx(ranked(rows, positives, negatives))
    total = losses["labeled"] + losses["unlabeled"] + 0.25 * losses["basis"]
    assert float(losses["loss"].detach()) == pytest.approx(float(total.detach()))


def test_pairs_may_be_those_of_the_clusters_alone() -> None:
    slade, plan = begun(pairs="clusters")
    ids = plan[0].repeat(2)
    z = points(7, len(ids))
    rows, of = z[ids >= 6], ids[ids >= 6]
    clusters = slade.classes[of].tolist()
    every = [(i, j) for i in range(len(of)) for j in range(len(of)) if i != j]
    positives = {(i, j) for i, j in every if clusters[i] == clusters[j]}
    assert 0 < len(positives) < len(every)
    expected = ranked(rows, positives, set(every) - positives)
    assert float(slade.loss({"f": z}, ids)["unlabeled"]) == pytest.approx(expected)


def test_moments_of_all_steps_are_followed_slowly_with_the_gradient_of_the_batch() -> None:
    slade, _ = begun()
    pairs = torch.ones(2, 3, 3, dtype=torch.bool)
    first, second = (torch.rand(3, 3, dtype=torch.double, requires_grad=True) for _ in range(2))
    slade._follow(first, pairs)
    expected = pair_moments(first.detach(), pairs[0])
    torch.testing.assert_close(slade.moments, expected.expand(2, 2))
    moments = slade._follow(second, pairs)
    found = pair_moments(second, pairs[0])
    torch.testing.assert_close(slade.moments[0], 0.99 * expected + 0.01 * found.detach())
    torch.testing.assert_close(moments.detach(), slade.moments)
    (gradient,) = torch.autograd.grad(moments[0].sum(), second, retain_graph=True)
    torch.testing.assert_close(gradient, torch.autograd.grad(found.sum(), second)[0])


def test_moments_stay_where_a_batch_has_no_such_pairs() -> None:
    slade, _ = begun()
    pairs = torch.ones(2, 3, 3, dtype=torch.bool)
    slade._follow(torch.rand(3, 3, dtype=torch.double), pairs)
    before = slade.moments.clone()
    pairs[0] = False
    slade._follow(torch.rand(3, 3, dtype=torch.double), pairs)
    assert torch.equal(slade.moments[0], before[0])
    assert not torch.equal(slade.moments[1], before[1])


def test_loss_reaches_the_network_and_the_basis_which_learns_as_fast_as_the_heads() -> None:
    slade, plan = begun()
    slade.float().train()
    images = torch.randint(0, 256, (16, 3, 32, 32), dtype=torch.uint8)
    slade(images, plan[0].repeat(2))["loss"].backward()
    assert [name for name, p in slade.named_parameters() if p.grad is None] == []
    (group,) = slade.extra_groups(1e-3)
    assert group["lr"] == 1e-3
    assert group["params"] == [slade.basis]


def test_state_restores_classes_basis_and_moments() -> None:
    slade, plan = begun()
    slade.loss({"f": points(3, 16)}, plan[0].repeat(2))
    other = learner()
    other.load_state_dict(slade.state_dict())
    z, ids = points(4, 16), plan[1].repeat(2)
    assert float(other.loss({"f": z}, ids)["loss"].detach()) == float(slade.loss({"f": z}, ids)["loss"].detach())
    assert torch.equal(*(one.batches(points(5), torch.Generator().manual_seed(2)) for one in (slade, other)))
