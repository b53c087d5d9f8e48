import pytest
import torch
from torch import Tensor

from selftaught.networks import choose_exponent, count_photos_per_thing, fit_whitening, whitened_layer


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


def test_without_centering_second_moments_are_evened_out_and_the_mean_stays() -> None:
    features = correlated()
    weight, bias = fit_whitening(features, 12, 1.0, centered=False)
    assert not bias.any()
    rows = features @ weight.T
    torch.testing.assert_close(rows.T @ rows / (rows.T @ rows)[0, 0], torch.eye(12, dtype=torch.float64))
    assert rows.mean(0)[0].abs() > 100 * rows.mean(0)[1:].abs().max()


def test_without_centering_small_variances_are_kept_beside_a_large_mean() -> None:
    features = correlated() + 100  # the mean's square is more than 10⁵ times any variance
    weight, _ = fit_whitening(features, 12, centered=False)
    assert (weight.norm(dim=1) > 0).all()
    flat = torch.cat([features, features[:, :2]], 1)
    assert (fit_whitening(flat, 14, centered=False)[0].norm(dim=1) > 0).tolist() == [True] * 12 + [False] * 2
    with pytest.raises(ValueError, match="all features are equal"):
        fit_whitening(torch.ones(9, 4), 2, centered=False)


def test_models_are_read_out_whitened_without_centering() -> None:
    features = correlated()
    layer = whitened_layer(features, 5, 0.25)
    weight, bias = fit_whitening(features, 5, 0.25, centered=False)
    torch.testing.assert_close(layer.weight, weight.to(layer.weight))
    torch.testing.assert_close(layer.bias, bias.to(layer.bias))


def grouped(spread: float) -> Tensor:
    """Twenty groups of rows; the lower the spread, the clearer."""
    random = torch.Generator().manual_seed(0)
    return torch.randn(20, 64, generator=random).repeat(20, 1) + spread * torch.randn(400, 64, generator=random)


def test_the_clearer_the_groups_the_less_is_whitened() -> None:
    exponents = [choose_exponent(grouped(spread)) for spread in (0.1, 1.7, 1.8, 4.0)]
    assert exponents[0] == 0.2
    assert exponents[-1] == 0.5
    assert exponents == sorted(exponents)
    assert choose_exponent(4 * grouped(1.7)) == exponents[1]  # lengths do not count; a power of two rounds nothing


@pytest.mark.parametrize(("things", "photos", "exponent"), [(200, 3, 0.5), (60, 12, 0.2)])
def test_small_groups_of_many_things_are_half_whitened(things: int, photos: int, exponent: float) -> None:
    random = torch.Generator().manual_seed(0)
    spread = 0.1 * torch.randn(things, photos, 64, generator=random)
    features = (torch.randn(things, 1, 64, generator=random) + spread).flatten(0, 1)
    assert count_photos_per_thing(features) == photos
    assert choose_exponent(features) == exponent


@pytest.mark.parametrize("features", [torch.ones(9, 4), torch.full((9, 4), torch.nan), torch.randn(2, 4)])
def test_what_forms_no_groups_is_half_whitened(features: Tensor) -> None:
    assert choose_exponent(features) == 0.5


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
