import pytest
import torch
from torch import Tensor

from selftaught.networks import fit_whitening


def correlated(n: int = 400, width: int = 12, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
    spread = torch.logspace(0, -1.5, width, dtype=torch.float64)
    rows: Tensor = torch.randn(n, width, generator=generator, dtype=torch.float64) * spread @ mixing + 7
    return rows


def whiten(features: Tensor, dim: int, alpha: float = 0.5) -> Tensor:
    weight, bias = fit_whitening(features, dim, alpha)
    return features @ weight.T + bias


@pytest.mark.parametrize(("alpha", "power"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)])
def test_whitening_evens_out_variances_to_the_power_asked_for(alpha: float, power: float) -> None:
    features = correlated()
    before = torch.linalg.eigvalsh(features.T.cov()).flip(0)
    after = whiten(features, 12, alpha).T.cov()
    wanted = (before / before.mean()) ** power
    torch.testing.assert_close(after.diagonal() / after.diagonal()[0], wanted / wanted[0])
    torch.testing.assert_close(after, after.diagonal().diag(), atol=1e-10, rtol=0)


def test_whitened_features_are_centered_and_the_first_dimensions_are_the_main_ones() -> None:
    features = correlated()
    whole, part = whiten(features, 12), whiten(features, 5)
    assert whole.mean(0).abs().max() < 1e-10
    torch.testing.assert_close(part / part[0, 0], whole[:, :5] / whole[0, 0])


def test_directions_without_variance_come_out_as_0_instead_of_noise() -> None:
    features = correlated(width=6)
    flat = torch.cat([features, features[:, :2] * 2, torch.full((len(features), 3), 5.0)], 1)
    weight, _ = fit_whitening(flat, 11)
    assert (weight.norm(dim=1) > 0).tolist() == [True] * 6 + [False] * 5
    torch.testing.assert_close(whiten(flat, 11)[:, 6:], torch.zeros(len(flat), 5, dtype=torch.float64))


def test_few_images_lend_half_as_many_directions_and_other_images_keep_their_distances_in_the_rest() -> None:
    weight, bias = fit_whitening(correlated(n=10), 12)
    main, rest = weight[:5], weight[5:]
    torch.testing.assert_close(rest @ rest.T, torch.eye(7, dtype=torch.float64))  # all that is left of 12
    assert (main @ rest.T).abs().max() < 1e-10
    centered = (correlated(n=10) @ weight.T + bias).mean(0)
    assert centered.abs().max() < 1e-10
    few, _ = fit_whitening(correlated(n=6), 8)
    assert few[3:].norm(dim=1).tolist() == pytest.approx([(9 / 5) ** 0.5] * 5)  # 9 directions, in 5 numbers
    assert torch.equal(few, fit_whitening(correlated(n=6), 8)[0])


def test_float32_features_with_a_large_mean_are_whitened_as_exactly_as_float64() -> None:
    features = correlated().float() + 1000
    weight, bias = fit_whitening(features, 8)
    assert weight.dtype == bias.dtype == torch.float32
    exact, _ = fit_whitening(features.double(), 8)
    torch.testing.assert_close(weight.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("features", "dim", "complaint"),
    [
        (torch.randn(1, 4), 2, "at least 2 images"),
        (torch.randn(9), 2, "at least 2 images"),
        (torch.randn(9, 4), 5, "between 1 and the 4 features"),
        (torch.randn(9, 4), 0, "between 1 and the 4 features"),
        (torch.ones(9, 4), 2, "all features are equal"),
        (torch.full((9, 4), torch.nan), 2, "undefined"),
    ],
)
def test_what_cannot_be_whitened_is_refused(features: Tensor, dim: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        fit_whitening(features, dim)
