import random

import pytest

from selftaught.report.noise import chance, scatter


def test_scatter_is_that_of_the_noise_whatever_the_course() -> None:
    draw = random.Random(0)
    noise = [draw.gauss(0, 0.3) for _ in range(4000)]
    for slope, jump in ((0.0, 0.0), (-0.01, 0.0), (0.0, 10.0)):
        values = [slope * i + jump * (i > 2000) + n for i, n in enumerate(noise)]
        assert scatter(values) == pytest.approx(0.3, rel=0.1)
    assert scatter(noise[:4]) == 0


def test_chance_is_that_of_draws() -> None:
    draw = random.Random(1)
    for fraction in (0.5, 0.9):
        means = [sum(draw.random() < fraction for _ in range(200)) / 200 for _ in range(2000)]
        center = sum(means) / len(means)
        spread = (sum((mean - center) ** 2 for mean in means) / len(means)) ** 0.5
        assert chance(fraction, 200) == pytest.approx(spread, rel=0.1)
    assert chance(0.0, 50) == pytest.approx(chance(1.0, 50))
    assert chance(0.0, 50) > 0.01
