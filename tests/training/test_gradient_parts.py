from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conftest import TINY
from selftaught import train
from selftaught.devices import free_memory
from selftaught.errors import UsageError
from selftaught.learners import make_settings
from selftaught.learners.stml import STML
from selftaught.networks import Backbone, Encoder, Preprocessing
from selftaught.training import automatic
from selftaught.training.automatic import resolve
from selftaught.training.gradient_parts import RecordedBackward, backward_in_parts, bytes_per_view, part_size

INPUTS = Preprocessing(size=32)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 12, 3, stride=2))


def learner() -> STML:
    torch.manual_seed(0)
    settings = make_settings(batch_size=10, neighbors=5, dim=4)
    built = STML(Encoder(network(), INPUTS, freeze_batch_norm=True), settings).double().train()
    built.network.encoder.preprocessing = built.teacher.encoder.preprocessing = Exact()  # type: ignore[assignment]
    return built


class Exact:
    """Pixels in double precision."""

    size = 32

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images.double() / 255


def assert_same_gradients(found: nn.Module, expected: nn.Module) -> None:
    gradients = {name: parameter.grad for name, parameter in found.named_parameters()}
    for name, parameter in expected.named_parameters():
        if parameter.grad is None:
            assert gradients[name] is None, name
        else:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("at_once", [1, 3, 7, 20])
def test_parts_give_the_losses_and_the_gradient_of_the_whole_batch(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selftaught.networks.model.full_precision", lambda x: x)
    rows = torch.randint(256, (20, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    ids = torch.arange(10).repeat(2)
    whole, parts = learner(), learner()
    expected = whole(rows, ids)
    expected["loss"].backward()
    losses = backward_in_parts(parts, rows, ids, at_once, nullcontext)
    for name, loss in expected.items():
        torch.testing.assert_close(losses[name], loss, rtol=1e-9, atol=1e-9)
    assert_same_gradients(parts, whole)


@pytest.mark.gpu
def test_recorded_parts_give_the_gradient_of_the_whole_batch_in_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selftaught.networks.model.full_precision", lambda x: x)
    whole, parts = learner().cuda(), learner().cuda()
    recorded = RecordedBackward(parts.network, nullcontext)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        rows = torch.randint(256, (20, 3, 32, 32), dtype=torch.uint8, generator=generator).cuda()
        ids = torch.arange(10).repeat(2).cuda()
        for one in (whole, parts):
            one.zero_grad()
        whole(rows, ids)["loss"].backward()
        backward_in_parts(parts, rows, ids, 5, nullcontext, recorded)
        assert recorded.graph is not None
        assert_same_gradients(parts, whole)
        with torch.no_grad():  # the graph must see the weights of the step
            for parameter in (*whole.parameters(), *parts.parameters()):
                parameter.mul_(0.9)


@pytest.mark.gpu
def test_a_network_that_cannot_be_recorded_is_taken_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selftaught.networks.model.full_precision", lambda x: x)
    rows = torch.randint(256, (20, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)).cuda()
    ids = torch.arange(10).repeat(2).cuda()
    whole, parts = learner().cuda(), learner().cuda()
    parts.network.encoder.register_forward_hook(lambda _module, _inputs, output: output * float(output.sum() > -1e9))
    recorded = RecordedBackward(parts.network, nullcontext)
    whole(rows, ids)["loss"].backward()
    backward_in_parts(parts, rows, ids, 5, nullcontext, recorded)
    assert recorded.graph is None
    assert_same_gradients(parts, whole)


def test_a_run_in_parts_ends_near_one_without_and_resumes_in_the_same_parts(photos: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = TINY | {"freeze_batch_norm": True, "epochs": 1, "quiet": True}
    whole = train(photos, out=tmp_path / "whole", **options).network.state_dict()
    parts = train(photos, out=tmp_path / "parts", rows_at_once=3, **options).network.state_dict()
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-2, atol=1e-3)


def resolved(free: int, monkeypatch: pytest.MonkeyPatch, module: nn.Module | None = None, **changes: Any) -> Any:
    monkeypatch.setattr(automatic, "free_memory", lambda _: free)
    backbone = Backbone("net", module or network(), INPUTS, True, "")
    return resolve(make_settings(epochs=1, **changes), 200, backbone, torch.device("cpu"))


def test_parts_are_chosen_by_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved(2**34, monkeypatch)[0].rows_at_once is None
    settings, choices = resolved(2**20, monkeypatch)
    assert 4 <= settings.rows_at_once < 2 * settings.batch_size
    assert "are free" in next(choice.reason for choice in choices if choice.name == "rows_at_once")
    assert resolved(2**20, monkeypatch, freeze_batch_norm=False)[0].rows_at_once is None


def test_parts_that_would_change_the_result_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="rows_at_once needs"):
        resolved(2**34, monkeypatch, rows_at_once=4, freeze_batch_norm=False)


def test_a_network_that_draws_random_numbers_is_not_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass would drop out others than the first, at whose embeddings the gradient was computed."""
    dropping = nn.Sequential(network(), nn.Dropout(0.5))
    before = torch.get_rng_state()
    assert resolved(2**20, monkeypatch, dropping)[0].rows_at_once is None
    with pytest.raises(UsageError, match="without dropout"):
        resolved(2**34, monkeypatch, dropping, rows_at_once=4)
    whole = resolved(2**34, monkeypatch, dropping, batch_size=20, rows_at_once=40)
    assert part_size(whole[0]) is None
    assert torch.equal(torch.get_rng_state(), before), "what is drawn next does not depend on it"


def test_memory_of_a_view_is_that_of_the_maps_that_are_kept() -> None:
    encoder = Encoder(network(), INPUTS, freeze_batch_norm=True).train()
    least = 4 * (3 * 32 * 32 + 8 * 15 * 15 + 8 * 15 * 15)  # input, normalized map, input of the second convolution
    assert least <= bytes_per_view(encoder) < 4 * least
    free = free_memory(torch.device("cpu"))
    assert free is None or free > 0
