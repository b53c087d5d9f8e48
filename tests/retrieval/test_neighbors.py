"""Exact neighbors in blocks, against a plain search."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import brute_force
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from selftaught.retrieval import nearest, neighbors, score
from selftaught.retrieval.neighbors import find_largest, rank_in_blocks

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def draw(n: int, d: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.fixture(params=[3, 7, 16, 65536], ids="gallery blocks of {}".format)
def gallery_block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "GALLERY_BLOCK", request.param)


@pytest.fixture(params=[1, 300, neighbors.BLOCK_BYTES], ids="{} bytes".format)
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("gallery_block", "block_bytes")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", [1, 4, 40])
def test_nearest_equals_brute_force_in_any_blocks(dtype: torch.dtype, k: int) -> None:
    queries, gallery = draw(23, seed=1, dtype=dtype), draw(40, dtype=dtype)
    distances, indices = nearest(queries, gallery, k)
    assert distances.shape == indices.shape == (23, k)
    assert distances.dtype == torch.promote_types(dtype, torch.float32)
    rows = gallery.double().tolist()
    for query, found, far in zip(queries.double().tolist(), indices.tolist(), distances.tolist(), strict=True):
        assert found == brute_force.ranking(query, rows)[:k]
        assert far == pytest.approx([brute_force.distance(query, rows[row]) for row in found], rel=1e-5)


@pytest.mark.usefixtures("gallery_block", "block_bytes")
@pytest.mark.parametrize("k", [1, 4, 39])
def test_the_excluded_row_is_left_out_wherever_it_lies(k: int) -> None:
    gallery = draw(40)
    own = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    _, indices = nearest(gallery[own], gallery, k, exclude=own)
    rows = gallery.tolist()
    for query, found in zip(own.tolist(), indices.tolist(), strict=True):
        assert found == brute_force.ranking(rows[query], rows, exclude=query)[:k]


@pytest.mark.usefixtures("gallery_block")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_exact_copy_of_the_query_is_found_first_and_the_query_never(dtype: torch.dtype) -> None:
    z = draw(20, dtype=dtype).repeat(2, 1)
    distances, indices = nearest(z, z, 39, exclude=torch.arange(40))
    assert torch.equal(indices[:, 0], (torch.arange(40) + 20) % 40)
    assert torch.equal(distances[:, 0], torch.zeros_like(distances[:, 0]))
    assert not (indices == torch.arange(40)[:, None]).any()


@pytest.mark.usefixtures("gallery_block")
def test_a_query_among_copies_only_finds_every_copy_but_itself() -> None:
    z = torch.ones(20, 3)
    distances, indices = nearest(z, z, 19, exclude=torch.arange(20))
    assert torch.equal(distances, torch.zeros(20, 19))
    for query, found in enumerate(indices.tolist()):
        assert sorted(found) == [row for row in range(20) if row != query]


@pytest.mark.usefixtures("gallery_block")
@pytest.mark.parametrize("k", [1, 3, 5, 9])
def test_with_ties_the_distances_are_the_smallest_and_no_row_comes_twice(k: int) -> None:
    gallery = torch.tensor([[x, y] for x in range(-2, 3) for y in range(-2, 3)]).float()
    distances, indices = nearest(gallery, gallery, k, exclude=torch.arange(25))
    rows = gallery.tolist()
    for query, (found, far) in enumerate(zip(indices.tolist(), distances.tolist(), strict=True)):
        expected = brute_force.ranking(rows[query], rows, exclude=query)[:k]
        assert far == pytest.approx([brute_force.distance(rows[query], rows[row]) for row in expected])
        assert len(set(found)) == k


def test_rows_far_from_the_origin_keep_their_order_in_float32() -> None:
    z = 1000 + draw(40, dtype=torch.float32)
    rows = z.double().tolist()
    _, indices = nearest(z, z, 10, exclude=torch.arange(40))
    assert indices.tolist() == [brute_force.ranking(row, rows, exclude=i)[:10] for i, row in enumerate(rows)]


@given(st.integers(0, 2**16), st.integers(1, 5), st.integers(1, 3000), st.integers(1, 40), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_largest_of_each_row_are_those_of_topk(seed: int, rows: int, columns: int, k: int, ties: bool) -> None:
    k = min(k, columns)
    scores = draw(rows, columns, seed)
    scores = scores.round() if ties else scores
    scores[:, :: max(1, columns // 3)] = -torch.inf
    values, indices = find_largest(scores, k)
    assert torch.equal(values, scores.topk(k).values)
    assert torch.equal(scores.gather(1, indices), values)
    assert all(len(set(row)) == k for row in indices.tolist())


def test_groups_of_columns_are_used_where_they_pay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    topk = Tensor.topk

    def counted(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        searched.append(self.shape[1])
        return topk(self, *args, **kwargs)

    monkeypatch.setattr(Tensor, "topk", counted)
    scores = draw(2, 64 * 100 + 7)
    assert torch.equal(find_largest(scores, 3)[1], topk(scores, 3).indices)
    assert searched == [100, 3 * 64 + 7]


class Largest(TorchDispatchMode):
    """Notes the bytes of the largest tensor that is made while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(made, Tensor) and made.untyped_storage().data_ptr() not in known:
                self.bytes = max(self.bytes, made.nbytes)
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("what", ["nearest", "score"])
def test_nothing_of_the_size_of_the_gallery_is_made(
    what: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "GALLERY_BLOCK", 256)
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", 50_000)
    n, d = 4000, 64
    z, labels = draw(n, d, dtype=dtype), torch.arange(n) % 800
    with Largest() as largest:
        if what == "nearest":
            nearest(z, z, 4, exclude=torch.arange(n))
        else:
            score(z, labels)
    assert largest.bytes <= 128 * 1024 < z.nbytes


def test_products_are_exact_whatever_the_settings_around_which_stay_as_they_were() -> None:
    z = draw(200, 64, dtype=torch.float32)
    expected = nearest(z, z, 50, exclude=torch.arange(200))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        inside = nearest(z, z, 50, exclude=torch.arange(200))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(inside[1], expected[1])


def test_searches_in_several_threads_leave_the_settings_as_they_were() -> None:
    z, products = draw(300, 16, dtype=torch.float32), torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = products.fp32_precision
    products.fp32_precision = "bf16"
    try:
        with ThreadPoolExecutor(8) as threads:
            for _ in range(20):
                list(threads.map(lambda _: nearest(z, z, 3), range(40)))
                assert products.fp32_precision == "bf16"
    finally:
        products.fp32_precision = before


def test_autocast_changes_nothing() -> None:
    z = draw(40, 64, dtype=torch.float32)
    plain = nearest(z, z, 20, exclude=torch.arange(40))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = nearest(z, z, 20, exclude=torch.arange(40))
    assert torch.equal(inside[0], plain[0])
    assert torch.equal(inside[1], plain[1])


def test_embeddings_with_a_gradient_can_be_searched() -> None:
    z = draw(10).requires_grad_()
    assert torch.equal(nearest(z, z, 3)[1], nearest(z.detach(), z.detach(), 3)[1])


@given(st.integers(0, 2**16), st.integers(2, 30), st.integers(1, 30), st.integers(1, 2000))
@settings(max_examples=40, deadline=None)
def test_every_block_size_gives_the_same_neighbors(seed: int, n: int, k: int, block_bytes: int) -> None:
    z, k = draw(n, seed=seed), min(k, n - 1)
    whole = nearest(z, z, k, exclude=torch.arange(n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "BLOCK_BYTES", block_bytes)
        blocked = nearest(z, z, k, exclude=torch.arange(n))
    assert torch.equal(blocked[1], whole[1])
    torch.testing.assert_close(blocked[0], whole[0], rtol=1e-4, atol=1e-5)
    assert (whole[0].diff(dim=1) >= 0).all()


@pytest.mark.parametrize(("k", "rows"), [(4, 6), (24, 1)])
def test_blocks_cover_the_queries_once_and_keep_to_their_memory(
    k: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the gallery is, each neighbor of a block counts, with what is computed from it."""
    monkeypatch.setattr(neighbors, "GALLERY_BLOCK", 40)
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", 6 * 40 * 4)
    z = draw(40, dtype=torch.float32)
    blocks = list(rank_in_blocks(z, z.repeat(50, 1), k, None))
    assert [(start, len(indices)) for start, indices in blocks] == [(s, min(rows, 40 - s)) for s in range(0, 40, rows)]


@pytest.mark.parametrize(("k", "excluding", "available"), [(0, False, 10), (11, False, 10), (10, True, 9)])
def test_a_k_beyond_the_gallery_is_refused(k: int, excluding: bool, available: int) -> None:
    z = draw(10)
    with pytest.raises(ValueError, match=f"k = {k} neighbors were asked for, but each query has {available}"):
        nearest(z, z, k, exclude=torch.arange(10) if excluding else None)
