"""Collections whose copies are known: clouds of different photos, some with copies at a known distance."""

import torch
from torch import Tensor

from selftaught.retrieval import Proposal, find_neighbors, propose_threshold

KNOWN = torch.linspace(0.1, 0.3, 50)
"""Copies are this far from their originals; different photos of the clouds below are rarely nearer than 0.5."""


def different(n: int, seed: int = 0, dim: int = 12) -> Tensor:
    photos: Tensor = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)) / dim**0.5
    return photos


def with_copies(photos: Tensor, originals: int, each: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    away = torch.nn.functional.normalize(torch.randn(originals * each, photos.shape[1], generator=generator), dim=1)
    far = KNOWN[torch.randint(len(KNOWN), (originals * each,), generator=generator)]
    return torch.cat([photos, photos[:originals].repeat(each, 1) + away * far[:, None]])


def propose(vectors: Tensor) -> Proposal:
    return propose_threshold(find_neighbors(vectors), KNOWN)


def test_where_there_are_no_copies_none_are_invented() -> None:
    for seed in range(6):
        proposal = propose(different(300, seed))
        assert proposal.threshold is None
        assert "by chance" in proposal.reason
        assert "--threshold" in proposal.reason


def test_copies_lie_under_the_threshold_and_different_photos_above() -> None:
    for originals, each in ((10, 1), (60, 1), (100, 1)):
        vectors = with_copies(different(300), originals, each)
        threshold = propose(vectors).threshold
        assert threshold is not None
        distances = find_neighbors(vectors).distances[:, 0]
        have_copies = torch.zeros(len(vectors), dtype=torch.bool)
        have_copies[:originals] = have_copies[300:] = True
        assert (distances[have_copies] <= threshold).double().mean() > 0.7
        assert (distances[~have_copies] <= threshold).sum() <= 0.1 * have_copies.sum()


def test_one_or_two_copies_among_many_photos_are_enough_for_a_threshold() -> None:
    for originals in (1, 2):
        for seed in range(6):
            vectors = with_copies(different(126, seed, dim=40), originals, 1, seed)
            threshold = propose(vectors).threshold
            assert threshold is not None
            found = (find_neighbors(vectors).distances[:, 0] <= threshold).nonzero()[:, 0].tolist()
            assert found
            assert {*found} <= {0, 126, originals - 1, 125 + originals}


def test_a_threshold_never_exceeds_what_copies_are_apart() -> None:
    spread = 20 * different(200, dim=40)
    assert propose(with_copies(spread, 50, 1)).threshold == KNOWN.quantile(0.9).item()


def test_photos_as_near_as_copies_are_not_called_copies() -> None:
    proposal = propose(0.05 * different(300))
    assert proposal.threshold is None
    assert "--threshold" in proposal.reason


def test_few_photos_are_judged_by_known_copies_alone() -> None:
    proposal = propose(different(5))
    assert proposal.threshold == KNOWN.median().item()
    assert "too few" in proposal.reason
    assert propose(different(1)).threshold is not None


def test_a_few_photos_less_do_not_move_the_threshold_far() -> None:
    """Where different photos of one thing are about as near as copies are."""
    generator = torch.Generator().manual_seed(0)
    things = (2 * torch.randn(50, 12, generator=generator) / 12**0.5).repeat_interleave(8, 0)
    photos = things + 0.4 * torch.randn(400, 12, generator=generator) / 12**0.5
    vectors = with_copies(photos, 100, 1, seed=50)
    thresholds = []
    for seed in range(6):
        order = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))
        threshold = propose(vectors[order[:475].sort().values]).threshold
        assert threshold is not None
        thresholds.append(threshold)
    assert max(thresholds) < 1.6 * min(thresholds)
