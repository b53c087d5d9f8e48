from typing import Any

import pytest
import torch
from torch import Tensor

from selftaught.learners.kmeans import _filled, run_kmeans
from selftaught.retrieval import nearest


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs(groups: int, each: int, spread: float = 1.0) -> Tensor:
    centers = 10 * torch.randn(groups, 8, generator=seeded(1))
    return centers.repeat_interleave(each, 0) + spread * torch.randn(groups * each, 8, generator=seeded(2))


def inertia(points: Tensor, centers: Tensor, clusters: Tensor) -> float:
    return float((points - centers[clusters]).square().sum())


@pytest.mark.parametrize(("spread", "k"), [(1.0, 12), (8.0, 12), (8.0, 30)])
def test_inertia_is_within_three_percent_of_scikit_learns(spread: float, k: int) -> None:
    sklearn = pytest.importorskip("sklearn.cluster")
    points = blobs(12, 40, spread)
    theirs = [sklearn.KMeans(k, n_init=1, random_state=seed).fit(points.numpy()).inertia_ for seed in range(5)]
    ours = [inertia(points, *run_kmeans(points, k, seeded(seed))) for seed in range(5)]
    assert sum(ours) < 1.03 * sum(theirs)
    assert max(ours) < 1.05 * max(theirs)


def test_clear_groups_are_found_whatever_the_seed() -> None:
    points = blobs(12, 40, spread=0.1)
    for seed in range(5):
        _, clusters = run_kmeans(points, 12, seeded(seed))
        assert (clusters.view(12, 40) == clusters.view(12, 40)[:, :1]).all()
        assert len(clusters.unique()) == 12


def test_centers_are_the_means_of_their_points_and_each_point_is_at_its_nearest_center() -> None:
    points = blobs(6, 30, spread=4.0)
    centers, clusters = run_kmeans(points, 6, seeded())
    for c in range(6):
        torch.testing.assert_close(centers[c], points[clusters == c].mean(0))
    assert torch.equal(torch.cdist(points, centers).argmin(1), clusters)


def test_no_cluster_is_empty_not_even_among_copies_of_few_points() -> None:
    points = torch.tensor([[0.0, 0.0], [5.0, 5.0]]).repeat(10, 1)
    _, clusters = run_kmeans(points, 7, seeded())
    assert clusters.bincount(minlength=7).min() >= 1
    _, clusters = run_kmeans(blobs(3, 4), 12, seeded())
    assert sorted(clusters.tolist()) == list(range(12)), "as many clusters as points: each its own"


def test_an_empty_cluster_takes_the_farthest_point_of_the_largest() -> None:
    clusters = torch.tensor([0, 0, 0, 2, 2])
    distances = torch.tensor([1.0, 3.0, 2.0, 9.0, 9.0])
    assert _filled(clusters, distances, 3).tolist() == [0, 1, 0, 2, 2]


def test_the_generator_alone_decides() -> None:
    points = blobs(5, 20, spread=8.0)
    torch.manual_seed(1)
    first = run_kmeans(points, 9, seeded(4))
    torch.manual_seed(2)
    second = run_kmeans(points, 9, seeded(4))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_stops_when_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: Any) -> Any:
        calls.append(1)
        return nearest(*args)

    monkeypatch.setattr("selftaught.learners.kmeans.nearest", counted)
    run_kmeans(blobs(4, 10, spread=0.1), 4, seeded())
    assert len(calls) == 2


def test_points_far_from_the_origin_are_told_apart() -> None:
    points = blobs(4, 20, spread=0.1) + 1000
    _, clusters = run_kmeans(points, 4, seeded())
    assert (clusters.view(4, 20) == clusters.view(4, 20)[:, :1]).all()


def test_more_clusters_than_points_are_refused() -> None:
    with pytest.raises(ValueError, match="k = 5 clusters were asked for, but there are 4 points"):
        run_kmeans(torch.zeros(4, 2), 5, seeded())


def test_given_centers_are_where_it_begins() -> None:
    points, first = blobs(4, 20), torch.arange(4) * 20
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        _, clusters = run_kmeans(points, 4, seeded(), start=points[first[order]])
        assert clusters[first[order]].tolist() == [0, 1, 2, 3]
