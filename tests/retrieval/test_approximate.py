"""Search by a FAISS index: near to the exact one, and chosen where exact is too slow."""

import brute_force
import pytest
import torch
from torch import Tensor

from selftaught.errors import UsageError
from selftaught.retrieval import approximate_nearest, choose_search, nearest, recall_against_exact
from selftaught.retrieval.approximate import APPROXIMATE_FROM

CPU = torch.device("cpu")


def clusters(n: int = 3000, d: int = 16, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    centers = 3 * torch.randn(n // 10, d, generator=draw)
    return centers[torch.randint(len(centers), (n,), generator=draw)] + torch.randn(n, d, generator=draw)


def test_nearly_all_true_neighbors_are_found_with_their_exact_distances() -> None:
    z = clusters()
    own = torch.arange(0, 3000, 5)
    distances, indices = approximate_nearest(z[own], z, 4, exclude=own)
    assert recall_against_exact(z[own], z, indices, exclude=own) > 0.9
    assert not (indices == own[:, None]).any()
    assert (distances.diff(dim=1) >= 0).all()
    assert all(len(set(row)) == 4 for row in indices.tolist())
    torch.testing.assert_close(distances, (z[indices] - z[own, None]).norm(dim=2), rtol=1e-4, atol=1e-5)


def test_few_rows_give_the_exact_neighbors() -> None:
    z = clusters(40)
    _, indices = approximate_nearest(z, z, 5, exclude=torch.arange(40))
    assert torch.equal(indices, nearest(z, z, 5, exclude=torch.arange(40))[1])
    assert indices.tolist() == [brute_force.ranking(row, z.tolist(), i)[:5] for i, row in enumerate(z.tolist())]


def test_a_query_whose_lists_hold_too_few_is_searched_exactly() -> None:
    z = torch.cat([torch.arange(3000.0)[:, None], torch.tensor([[1e6], [1e6 + 1]])])
    own = torch.tensor([3000, 7])
    distances, indices = approximate_nearest(z[own], z, 2500, exclude=own)
    exact = nearest(z[own], z, 2500, exclude=own)
    assert torch.equal(indices, exact[1])
    torch.testing.assert_close(distances, exact[0], rtol=1e-4, atol=1e-5)


def test_recall_counts_what_was_found() -> None:
    z = clusters(50)
    _, exact = nearest(z, z, 4, exclude=torch.arange(50))
    found = exact.clone()
    assert recall_against_exact(z, z, found.flip(1), exclude=torch.arange(50)) == 1
    found[:, 0] = torch.arange(50)
    assert recall_against_exact(z, z, found, exclude=torch.arange(50)) == 0.75


def test_the_search_is_exact_for_few_images_and_on_a_gpu_and_the_reason_is_told() -> None:
    assert choose_search("auto", APPROXIMATE_FROM - 1, CPU) == (nearest, "exact: under 500,000 images")
    assert choose_search("auto", 10**6, torch.device("cuda")) == (nearest, "exact: fast enough on a GPU")
    assert choose_search("auto", 10**6, CPU) == (
        approximate_nearest,
        "approximate (FAISS): 1,000,000 images without a GPU",
    )
    assert choose_search("exact", 10**6, CPU) == (nearest, "exact: as asked for")
    assert choose_search("approximate", 10, CPU) == (approximate_nearest, "approximate (FAISS): as asked for")


def test_without_faiss_auto_stays_exact_and_approximate_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selftaught.retrieval.approximate.find_spec", lambda _: None)
    search, reason = choose_search("auto", 10**6, CPU)
    assert search is nearest
    assert "pip install 'selftaught[faiss]'" in reason
    with pytest.raises(UsageError, match=r"pip install 'selftaught\[faiss\]'"):
        choose_search("approximate", 10, CPU)


def test_a_k_beyond_the_gallery_is_refused() -> None:
    z = clusters(20)
    with pytest.raises(ValueError, match="k = 20 neighbors were asked for, but each query has 19"):
        approximate_nearest(z, z, 20, exclude=torch.arange(20))
