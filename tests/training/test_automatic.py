from typing import Any

import pytest
import torch
from torch import nn

from selftaught.errors import SelftaughtError, UsageError
from selftaught.learners import make_settings
from selftaught.networks import Backbone, Preprocessing
from selftaught.recipes import Settings
from selftaught.run_folder import Choice
from selftaught.training import automatic
from selftaught.training.automatic import resolve
from selftaught.training.legs import rate_factor

CPU = torch.device("cpu")


def chosen(
    images: int, pretrained: bool = True, name: str = "net", **changes: Any
) -> tuple[Settings, dict[str, Choice]]:
    backbone = Backbone(name, nn.Identity(), Preprocessing(size=96), pretrained, "from somewhere")
    result, choices = resolve(make_settings(**{"neighbors": 5} | changes), images, backbone, CPU)
    return result, {choice.name: choice for choice in choices}


@pytest.mark.parametrize(
    ("images", "neighbors", "size"),
    [(5864, 5, 120), (960, 5, 120), (600, 5, 75), (100, 5, 60), (11, 5, 10), (7, 2, 6), (500, 70, 140)],
)
def test_batches_shrink_with_the_folder(images: int, neighbors: int, size: int) -> None:
    result, choices = chosen(images, neighbors=neighbors)
    assert result.batch_size == size
    assert choices["batch_size"].reason


def test_too_few_images_and_too_large_a_batch_are_refused() -> None:
    with pytest.raises(SelftaughtError, match="one image cannot be learned from"):
        chosen(1)
    with pytest.raises(SelftaughtError, match="at least 10 images"):
        chosen(9)
    with pytest.raises(UsageError, match="at most 50"):
        chosen(52, batch_size=120)


def test_batch_norm_is_frozen_exactly_when_weights_are_pretrained() -> None:
    assert chosen(500)[0].freeze_batch_norm is True
    assert chosen(500, pretrained=False)[0].freeze_batch_norm is False
    assert chosen(500, freeze_batch_norm=False)[0].freeze_batch_norm is False


def test_every_choice_is_made_and_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "has_bfloat16", lambda: False)
    result, choices = chosen(500)
    assert set(choices) == {
        "backbone",
        "crop",
        "batch_size",
        "freeze_batch_norm",
        "precision",
        "compile",
        "cache_side",
        "workers",
    }
    assert all(choice.reason for choice in choices.values())
    assert (choices["crop"].value, result.precision) == (96, "32-true")
    assert result.workers is not None


def test_the_learning_rate_of_a_pretrained_backbone_is_lower_in_runs_of_few_steps() -> None:
    assert chosen(2450, recipe="best", epochs=30)[0].lr == 1e-4  # 600 steps
    assert chosen(600, recipe="best", epochs=30)[0].lr == pytest.approx(0.6e-4)  # 240 steps
    assert chosen(240, recipe="best", epochs=2)[0].lr == pytest.approx(0.3e-4)
    assert chosen(240, recipe="best", epochs=2, lr=1e-3)[0].lr == 1e-3
    assert chosen(240, pretrained=False, recipe="best", epochs=2)[0].lr == 1e-4
    assert "lr" not in chosen(240, recipe="official", epochs=2)[1]


def test_a_run_of_many_epochs_begins_like_one_of_30_and_then_settles() -> None:
    (short, short_choices), (long, long_choices) = (chosen(2450, recipe="best", epochs=epochs) for epochs in (30, 300))
    assert (short.schedule, long.schedule) == ("cosine", "settle")
    assert [short_choices[name] for name in ("lr", "momentum")] == [long_choices[name] for name in ("lr", "momentum")]
    assert [rate_factor(long, 0, epoch) for epoch in range(30)] == [rate_factor(short, 0, epoch) for epoch in range(30)]
    assert {rate_factor(long, 0, epoch) for epoch in range(30, 300)} == {0.01}
    assert rate_factor(long, 100, 115) == rate_factor(short, 0, 15)  # another leg
    assert chosen(2450, recipe="best", epochs=300, schedule="cosine")[0].schedule == "cosine"
    assert chosen(2450, recipe="best", epochs=300, pretrained=False)[0].schedule == "cosine"
    assert chosen(2450, recipe="best", epochs=300, train="heads")[0].schedule == "cosine"
    assert chosen(2450, recipe="official", epochs=300)[0].schedule == "cosine"


def test_the_momentum_follows_the_length_of_the_run() -> None:
    assert chosen(2450, recipe="best", epochs=20)[1]["momentum"].value == max(0.998, 1 - 1 / 400)
    asked = chosen(2450, recipe="best", epochs=90, schedule="cosine")[1]["momentum"]
    assert asked.value == pytest.approx(1 - 1 / 1800)
    assert chosen(2450, recipe="best", epochs=1)[1]["momentum"].value == 0.998
    assert "momentum" not in chosen(2450, recipe="official")[1]


def test_the_pooling_suits_the_backbone_unless_it_is_given() -> None:
    best: dict[str, Any] = {"recipe": "best", "epochs": 1}
    assert chosen(100, name="tf_efficientnet_lite0", **best)[0].pooling == "gem"
    assert chosen(100, name="resnet50.tv_in1k", **best)[0].pooling == "avg+max"
    assert chosen(100, name="tf_efficientnet_lite0", pooling="avg", **best)[0].pooling == "avg"
    assert chosen(100, name="tf_efficientnet_lite0", recipe="official")[0].pooling == "avg+max"


def test_the_size_at_use_is_a_multiple_of_the_crop_or_as_asked_for() -> None:
    assert chosen(100, recipe="best", epochs=1)[0].use_size == round(96 * 9 / 7)
    assert chosen(100, recipe="best", epochs=1, use_size=100)[0].use_size == 100
    assert chosen(100, recipe="official")[0].use_size is None


@pytest.mark.parametrize("recipe", ["best", "official"])
def test_a_search_that_is_not_exact_is_a_choice_with_a_reason(recipe: str) -> None:
    pytest.importorskip("faiss")
    assert chosen(100, recipe=recipe, epochs=1, search="approximate")[1]["search"].reason == "as asked for"
    choice = chosen(500_000, recipe=recipe, epochs=1)[1]["search"]
    assert (choice.value, choice.reason) == ("approximate", "500,000 images without a GPU")
    assert "search" not in chosen(500_000, recipe=recipe, epochs=1, batches="random")[1]
