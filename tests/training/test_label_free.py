import math

import pytest
import torch

from selftaught.training import label_free
from selftaught.training.label_free import effective_rank, symptom, view_agreement

GOOD = {"effective_rank": 40.0, "view_agreement": 0.7, "loss": 0.3}


def test_effective_rank_counts_the_directions_in_use() -> None:
    torch.manual_seed(0)
    for rank in (1, 4, 16):
        z = torch.linalg.qr(torch.randn(400, rank)).Q @ torch.linalg.qr(torch.randn(32, rank)).Q.T
        assert effective_rank(z - z.mean(0)) == pytest.approx(rank, rel=0.05)
        assert effective_rank(1000 * z + 7) == pytest.approx(rank, rel=0.05)
    assert math.isnan(effective_rank(torch.tensor([[1.0], [math.nan]])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_effective_rank_is_that_of_the_singular_values_however_the_rows_are_divided(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(0, -2, 24)
    z = (torch.randn(301, 24, generator=generator) * scale + 5).to(dtype)
    p = torch.linalg.svdvals(z.double() - z.double().mean(0))
    p /= p.sum()
    expected = math.exp(-float((p * p.log()).sum()))
    for block_bytes in (1, 8 * 24 * 50, 2**26):
        monkeypatch.setattr(label_free, "BLOCK_BYTES", block_bytes)
        assert effective_rank(z) == pytest.approx(expected, rel=1e-6)


def test_effective_rank_holds_only_a_block_in_high_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(4000, 8)
    largest, plain = 0, torch.Tensor.to

    def noting(self: torch.Tensor, *arguments: object) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, self.numel())
        return plain(self, *arguments)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch.Tensor, "to", noting)
    monkeypatch.setattr(label_free, "BLOCK_BYTES", 8 * 8 * 100)
    effective_rank(z)
    assert largest == 8 * 100


def test_embeddings_on_one_point_have_rank_zero() -> None:
    assert effective_rank(torch.full((1000, 5), 0.1)) == 0.0
    assert effective_rank(torch.full((7, 3), 1e6)) == 0.0
    assert effective_rank(torch.randn(1, 4)) == 0.0


def test_view_agreement_is_how_often_the_other_view_is_nearest() -> None:
    gallery = torch.tensor([[0.0], [10.0], [20.0]])
    first = torch.tensor([[0.5], [14.0], [20.0]])
    second = torch.tensor([[1.0], [10.0], [25.0]])
    # Image 0: own view at 0.5, nearest other at 9.5. Image 1: own at 4, other at 6. Image 2: own at 5, other at 10.
    assert view_agreement(first, second, gallery, torch.arange(3)) == 1.0
    # An image's own gallery row is no competitor, another image at the same place is one.
    assert view_agreement(first[:1], torch.tensor([[11.0]]), gallery, torch.tensor([0])) == 0.0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"effective_rank": 1.2}, "directions"),
        ({"effective_rank": 0.0}, "directions"),
        ({"view_agreement": 0.01}, "other view"),
        ({"loss": math.nan}, "no longer a number"),
        ({"effective_rank": math.nan}, "no longer a number"),
    ],
)
def test_a_dead_embedding_is_recognized(change: dict[str, float], word: str) -> None:
    assert word in str(symptom(GOOD, GOOD | change, images=100))


@pytest.mark.parametrize("change", [{}, {"effective_rank": 10.0}, {"view_agreement": 0.3}, {"view_agreement": 1.0}])
def test_a_living_embedding_is_left_alone(change: dict[str, float]) -> None:
    assert symptom(GOOD, GOOD | change, images=100) is None


def test_a_small_start_is_no_collapse() -> None:
    low = {"effective_rank": 1.4, "view_agreement": 0.02, "loss": 0.3}
    assert symptom(low, low, images=100) is None
