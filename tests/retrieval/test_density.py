import pytest
import torch

from selftaught.retrieval import CLEAR_STEP, estimate_photos_per_thing, find_neighbors


def collection(things: int, photos: int, seed: int = 0) -> torch.Tensor:
    """Photos scattered around things that are about three times as far apart."""
    random = torch.Generator().manual_seed(seed)
    centers = 3 * torch.randn(things, 1, 10, generator=random)
    return (centers + torch.randn(things, photos, 10, generator=random)).flatten(0, 1)


@pytest.mark.parametrize("photos", [2, 3, 5, 8])
def test_the_number_of_photos_of_one_thing_is_found(photos: int) -> None:
    assert estimate_photos_per_thing(find_neighbors(collection(1200 // photos, photos))) == photos


def test_a_few_copies_do_not_make_things() -> None:
    cloud = torch.randn(600, 10, generator=torch.Generator().manual_seed(0))
    with_copies = torch.cat([cloud, cloud[:25] + 1e-4])
    assert estimate_photos_per_thing(find_neighbors(with_copies), CLEAR_STEP) is None


def test_an_even_cloud_has_no_things() -> None:
    for seed in range(5):
        cloud = torch.randn(600, 10, generator=torch.Generator().manual_seed(seed))
        assert estimate_photos_per_thing(find_neighbors(cloud)) is None


def test_too_few_or_equal_photos_tell_nothing() -> None:
    assert estimate_photos_per_thing(find_neighbors(torch.randn(4, 3))) is None
    assert estimate_photos_per_thing(find_neighbors(torch.zeros(1, 3))) is None
    assert estimate_photos_per_thing(find_neighbors(torch.zeros(30, 3))) is None


def test_copies_of_some_photos_are_not_taken_for_photos_of_one_thing() -> None:
    random = torch.Generator().manual_seed(0)
    cloud = torch.randn(400, 16, generator=random)
    copies = cloud[:60] + 0.1 * torch.randn(60, 16, generator=random)
    assert estimate_photos_per_thing(find_neighbors(torch.cat([cloud, copies]))) is None
    pairs = cloud + 0.1 * torch.randn(400, 16, generator=random)
    assert estimate_photos_per_thing(find_neighbors(torch.cat([cloud, pairs]))) == 2
