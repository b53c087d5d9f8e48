"""Maps keep neighbors together, start at once and get better."""

import numpy as np
import pytest
import torch

from selftaught.explore.maps import Maps
from selftaught.report import EARLY, LATE, Map, neighbor_map, principal_map
from selftaught.report.plane import project, spread

pytest.importorskip("openTSNE")


def blobs(groups: int, each: int, dim: int = 20) -> tuple[torch.Tensor, np.ndarray]:
    generator = torch.Generator().manual_seed(0)
    centers = 6 * torch.randn(groups, dim, generator=generator)
    points = centers.repeat_interleave(each, 0) + torch.randn(groups * each, dim, generator=generator)
    return points, np.repeat(np.arange(groups), each)


def agreement(places: Map, group: np.ndarray) -> float:
    """How often the nearest on the map is of the same group."""
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return float((group[distances.argmin(1)] == group).mean())


def test_neighbors_stay_together_and_steps_are_shown() -> None:
    points, group = blobs(groups=8, each=25)
    steps: list[int] = []

    def show(step: int, places: Map) -> bool:
        steps.append(step)
        assert places.shape == (200, 2)
        return False

    places = neighbor_map(points, principal_map(points), show)
    assert agreement(places, group) > 0.97
    assert steps == sorted(steps)
    assert steps[-1] == EARLY + LATE
    assert np.quantile(np.abs(places), 0.995) == pytest.approx(1, abs=0.01)


def test_principal_directions_are_those_of_a_plain_decomposition() -> None:
    points, _ = blobs(groups=3, each=30)
    plain = torch.linalg.svd(points - points.mean(0), full_matrices=False)
    expected = (points - points.mean(0)) @ plain.Vh[:2].T
    torch.testing.assert_close(project(points, 2).abs(), expected.abs(), rtol=1e-3, atol=1e-3)
    assert np.array_equal(principal_map(points), principal_map(points))


@pytest.mark.parametrize("n", [1, 2, 3, 6, 8])
def test_few_or_equal_photos_have_places_too(n: int) -> None:
    for vectors in (torch.zeros(n, 8), torch.randn(n, 1, generator=torch.Generator().manual_seed(n))):
        maps = Maps([vectors])
        assert maps.maps[0].shape == (n, 2)
        maps.start()
        maps._thread.join()
        assert maps.maps[0].shape == (n, 2)
        assert np.isfinite(maps.maps[0]).all()
        assert maps.steps == [EARLY + LATE]


def test_work_on_maps_can_be_stopped() -> None:
    points, _ = blobs(groups=4, each=25)
    maps = Maps([points, points])
    maps.stop()
    maps.start()
    maps._thread.join()
    assert maps.steps[1] == 0


def test_outliers_do_not_shrink_the_rest() -> None:
    places = np.concatenate([np.random.default_rng(0).uniform(-3, 3, (1000, 2)), [[900.0, 900.0]]])
    assert 0.9 < np.abs(spread(places)[:1000]).max() < 1.1
