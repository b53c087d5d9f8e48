"""Eqs. 5–10 against plain loops, and what must hold for every batch."""

import naive
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from selftaught.method import contextual_similarity, contextualized_similarity, pairwise_similarity

DTYPES = [torch.float64, torch.float32, torch.bfloat16]
IDS = {
    "without ids": None,
    "two views": torch.arange(12).repeat(2),
    "an image drawn three times": torch.tensor([0, 1, 2, 0, 4, 5, 6, 0, 8, 9, 10, 2]).repeat(2),
}


def clustered(n: int = 24, d: int = 8, clusters: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(n, d, generator=draw, dtype=torch.float64)
    centers = torch.randn(clusters, d, generator=draw, dtype=torch.float64)
    return (0.5 * noise + centers[torch.arange(n) % clusters]).to(dtype)


def assert_equals_loops(found: Tensor, expected: naive.Matrix, dtype: torch.dtype) -> None:
    full = torch.promote_types(dtype, torch.float32)
    tolerance = 1e-12 if full == torch.float64 else 2e-6
    assert found.dtype == full
    torch.testing.assert_close(found.double(), naive.tensor(expected), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pairwise_similarity_equals_loops(dtype: torch.dtype) -> None:
    teacher = clustered(dtype=dtype)
    assert_equals_loops(pairwise_similarity(teacher, 3.0), naive.pairwise(naive.matrix(teacher), 3.0), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 24])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_contextual_similarity_equals_loops(dtype: torch.dtype, k: int, ids: Tensor | None) -> None:
    teacher = clustered(dtype=dtype)
    expected = naive.contextual(naive.matrix(teacher), k, None if ids is None else ids.tolist())
    assert_equals_loops(contextual_similarity(teacher, k, ids), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_contextualized_similarity_equals_loops(dtype: torch.dtype, ids: Tensor | None) -> None:
    teacher = clustered(dtype=dtype)
    expected = naive.contextualized(naive.matrix(teacher), 6, 2.0, None if ids is None else ids.tolist())
    assert_equals_loops(contextualized_similarity(teacher, 6, 2.0, ids), expected, dtype)


def test_ids_change_the_contextual_part_and_leave_the_pairwise_part() -> None:
    teacher, ids = clustered(), torch.arange(12).repeat(2)
    contextual = contextual_similarity(teacher, 4, ids)
    assert not torch.equal(contextual, contextual_similarity(teacher, 4))
    rest = 2 * contextualized_similarity(teacher, 4, 3.0, ids) - contextual
    torch.testing.assert_close(rest, pairwise_similarity(teacher, 3.0))


batches = st.tuples(st.integers(0, 2**16), st.integers(2, 20), st.integers(1, 20), st.booleans())


@given(batches)
@settings(max_examples=40, deadline=None)
def test_similarity_is_symmetric_within_0_and_1_and_independent_of_row_order(batch: tuple[int, int, int, bool]) -> None:
    seed, n, k, with_ids = batch
    k = min(k, n)
    torch.manual_seed(seed)
    teacher = clustered(n, seed=seed)
    ids = torch.randint(n, (n,)) if with_ids else None
    w = contextualized_similarity(teacher, k, 3.0, ids)
    assert torch.equal(w, w.T)
    assert w.min() >= 0
    assert w.max() <= 1
    order = torch.randperm(n)
    shuffled = contextualized_similarity(teacher[order], k, 3.0, None if ids is None else ids[order])
    torch.testing.assert_close(shuffled, w[order][:, order], rtol=0, atol=1e-12)


class Uneven(Tensor):
    """Rows whose product with themselves is symmetric only up to rounding, as it is on some CPUs."""

    def __matmul__(self, other: Tensor) -> Tensor:
        product = self.as_subclass(Tensor) @ other.as_subclass(Tensor)
        return product * (1 + torch.finfo(product.dtype).eps * torch.ones_like(product).triu(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_similarity_is_symmetric_where_the_product_is_not(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    normalize = F.normalize
    monkeypatch.setattr(F, "normalize", lambda rows: normalize(rows).as_subclass(Uneven))
    teacher = clustered(dtype=dtype)
    t = F.normalize(teacher)
    assert not torch.equal(t @ t.T, (t @ t.T).T)
    w = pairwise_similarity(teacher)
    assert torch.equal(w, w.T)
    assert torch.equal(contextualized_similarity(teacher, 6), contextualized_similarity(teacher, 6).T)


@given(batches)
@settings(max_examples=20, deadline=None)
def test_diagonal_is_1_in_the_pairwise_part_and_positive_in_the_contextual_part(
    batch: tuple[int, int, int, bool],
) -> None:
    seed, n, k, _ = batch
    teacher = clustered(n, seed=seed)
    assert torch.equal(pairwise_similarity(teacher).diagonal(), torch.ones(n, dtype=torch.float64))
    assert contextual_similarity(teacher, min(k, n)).diagonal().min() > 0


def test_with_k_1_a_row_is_its_own_whole_context() -> None:
    assert torch.equal(contextual_similarity(clustered(), 1), torch.eye(24, dtype=torch.float64))


@pytest.mark.parametrize("k", [0, -1, 25])
def test_a_k_outside_the_batch_is_refused_by_name(k: int) -> None:
    with pytest.raises(ValueError, match=f"k = {k} neighbors are more than the batch of 24 rows"):
        contextualized_similarity(clustered(), k)


@pytest.mark.parametrize("ids", [None, torch.zeros(24, dtype=torch.long), torch.arange(24)], ids=str)
@pytest.mark.parametrize("k", [1, 4, 10, 24])
@pytest.mark.parametrize("rows", ["all equal", "all zero", "copies of two", "different"])
def test_with_copies_similarity_is_finite_and_a_row_stays_in_its_own_context(
    ids: Tensor | None, k: int, rows: str
) -> None:
    teacher = clustered(dtype=torch.float32)
    if rows != "different":
        teacher = teacher[torch.arange(24) % (2 if rows == "copies of two" else 1)] * (rows != "all zero")
    w = contextualized_similarity(teacher, k, 3.0, ids)
    assert w.isfinite().all()
    assert torch.equal(w, w.T)
    assert w.min() >= 0
    assert w.max() <= 1
    assert contextual_similarity(teacher, k, ids).diagonal().min() > 0
    if rows == "all equal":
        assert pairwise_similarity(teacher).min() > 1 - 1e-6


def test_autocast_changes_nothing() -> None:
    teacher, ids = clustered(dtype=torch.float32), torch.arange(12).repeat(2)
    plain = contextualized_similarity(teacher, 6, 3.0, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (teacher @ teacher.T).dtype == torch.bfloat16
        inside = contextualized_similarity(teacher, 6, 3.0, ids)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, plain)


def test_no_gradient_flows() -> None:
    teacher = clustered().requires_grad_()
    assert not pairwise_similarity(teacher).requires_grad
    assert not contextual_similarity(teacher, 4).requires_grad
    assert not contextualized_similarity(teacher, 4).requires_grad
