from dataclasses import replace

import pytest
import torch

from selftaught.errors import UsageError
from selftaught.retrieval import clusters, find_centers, find_groups


def blobs(sizes: list[int], seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centers = 10 * torch.randn(len(sizes), 8, generator=generator)
    return torch.cat([c + 0.3 * torch.randn(n, 8, generator=generator) for c, n in zip(centers, sizes, strict=True)])


@pytest.mark.parametrize("most", [30_000, 10])
def test_separate_blobs_are_groups_the_largest_first(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(clusters, "HIERARCHY_UP_TO", most)
    monkeypatch.setattr(clusters, "GRAPH_NEIGHBORS", 8)
    groups = find_groups(blobs([6, 12, 2, 9]), smallest=5)
    parts = groups.split([6, 12, 2, 9])
    assert [part.mode().values.item() for part in parts] == [2, 0, -1, 1]
    assert [len(set(part.tolist()) - {-1}) for part in parts] == [1, 1, 0, 1]
    assert (groups >= 0).sum() >= 25


def test_too_few_vectors_are_no_group() -> None:
    assert find_groups(torch.zeros(3, 4), smallest=5).tolist() == [-1, -1, -1]
    assert find_groups(torch.zeros(0, 4), smallest=2).tolist() == []


def test_new_vectors_go_to_their_group_and_strangers_to_none() -> None:
    all_of_them = blobs([200, 200, 50])
    groups = torch.tensor([0] * 200 + [1] * 200)
    known, new, strangers = all_of_them[:400:2], all_of_them[1:400:2], all_of_them[400:]
    centers = find_centers(known, groups[::2])
    found, distances = centers.assign(new)
    assert 0.6 < (found == groups[1::2]).double().mean() < 0.9
    assert set(found[:100].tolist()) == {0, -1}
    assert distances.max() < 3
    assert (centers.assign(strangers)[0] == -1).all()


def test_copies_of_one_photo_are_found_again_by_their_rounded_center() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(1, 512, generator=torch.Generator().manual_seed(0)), dim=1)
    centers = find_centers(vectors.repeat(4, 1), torch.zeros(4, dtype=torch.long))
    assert replace(centers, means=centers.means.half().float()).assign(vectors)[0].tolist() == [0]


def test_no_groups_have_no_centers_and_take_nothing_in() -> None:
    centers = find_centers(torch.randn(4, 3), torch.full((4,), -1))
    assert centers.means.shape == (0, 3)
    assert centers.assign(torch.randn(2, 3))[0].tolist() == [-1, -1]


def test_without_scikit_learn_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"selftaught\[groups\]"):
        find_groups(torch.randn(20, 3), 5)
