import io
import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from timm.optim import adamp as timm_adamp
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from selftaught.training.checkpoint import restore_optimizer
from selftaught.training.optimizer import AdamP

SETTINGS: dict[str, Any] = {"betas": (0.9, 0.999), "weight_decay": 1e-2, "nesterov": True}
SHAPES = [(8, 3, 3, 3), (16, 8, 1, 1), (6,), (16, 8, 3, 3), (5, 16), (1, 7), (4, 1), (), (8, 3, 5, 5), (2, 3, 2, 2, 2)]


def weights(dtype: torch.dtype = torch.float32, channels_last: bool = False) -> list[nn.Parameter]:
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=dtype) for shape in SHAPES]
    if channels_last:
        tensors = [t.to(memory_format=torch.channels_last) if t.ndim == 4 else t for t in tensors]
    return [nn.Parameter(t) for t in tensors]


def gradient(p: Tensor, kind: int) -> Tensor:
    """Random, at a right angle to each row of p, at a right angle to p as a whole only, or zero."""
    g = torch.randn_like(p)
    if kind == 3 or p.ndim < 2:
        return g if kind != 3 else torch.zeros_like(p)
    rows, own = g.flatten(1), p.detach().flatten(1)
    if kind == 1:
        rows = rows - own * ((rows * own).sum(1) / own.square().sum(1).clamp(min=1e-30))[:, None]
    elif kind == 2:
        rows = rows - own * ((rows * own).sum() / own.square().sum())
    return rows.view_as(p)


def run(
    ours: list[nn.Parameter],
    theirs: list[nn.Parameter],
    steps: int = 100,
    settings: dict[str, Any] = SETTINGS,
    kind: Callable[[int, int], int] = lambda step, i: (step // 20 + i) % 4,
    grouped: bool = False,
) -> tuple[AdamP, timm_adamp.AdamP]:
    """The same steps with both optimizers."""

    def split(params: list[nn.Parameter]) -> Any:
        return [{"params": params[::2], "lr": 1e-2}, {"params": params[1::2], "lr": 3e-3}] if grouped else params

    mine, timms = AdamP(split(ours), lr=1e-2, **settings), timm_adamp.AdamP(split(theirs), lr=1e-2, **settings)
    torch.manual_seed(1)
    for step in range(steps):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            b.grad = gradient(b, kind(step, i))
            a.grad = b.grad.clone()
        mine.step()
        timms.step()
        if step % 10 == 9:  # a schedule
            for optimizer in (mine, timms):
                for group in optimizer.param_groups:
                    group["lr"] *= 0.9
    return mine, timms


def assert_same(ours: list[nn.Parameter], theirs: list[nn.Parameter], tolerance: float = 1e-6) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_100_steps_give_the_parameters_of_timm(channels_last: bool, grouped: bool) -> None:
    ours, theirs = weights(channels_last=channels_last), weights(channels_last=channels_last)
    run(ours, theirs, grouped=grouped)
    assert_same(ours, theirs)
    assert all(a.stride() == b.stride() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1}, {"nesterov": True, "delta": 0.5, "wd_ratio": 0.3}])
def test_float64_and_other_settings_agree_too(settings: dict[str, Any]) -> None:
    ours, theirs = weights(torch.float64), weights(torch.float64)
    run(ours, theirs, settings=settings)
    assert_same(ours, theirs, 1e-12)


def test_the_tests_project_by_channel_by_layer_and_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    plain = timm_adamp.projection

    def noting(p: Tensor, grad: Tensor, perturb: Tensor, delta: float, ratio: float, eps: float, caution: bool) -> Any:
        limit = delta / math.sqrt(p[0].numel())
        by_row = torch.cosine_similarity(grad.flatten(1), p.flatten(1), eps=eps).abs().max() < limit
        result = plain(p, grad, perturb, delta, ratio, eps, caution)
        seen.add("none" if result[1] == 1 else "channel" if by_row else "layer")
        return result

    monkeypatch.setattr(timm_adamp, "projection", noting)
    run(weights(), weights())
    assert seen == {"channel", "layer", "none"}


def test_each_kind_of_projection_alone_agrees() -> None:
    for kind in range(4):
        ours, theirs = weights(), weights()
        run(ours, theirs, 20, kind=lambda _step, _i, kind=kind: kind)  # type: ignore[misc]
        assert_same(ours, theirs)


def test_zero_weights_stay_finite_and_agree() -> None:
    ours, theirs = weights(), weights()
    for params in (ours, theirs):
        params[0].data[:1] = 0
        params[3].data.zero_()
    run(ours, theirs, 30, kind=lambda step, i: (0, 3)[(step + i) % 2])
    assert_same(ours, theirs)
    assert all(bool(p.isfinite().all()) for p in ours)


def test_parameters_without_a_gradient_are_left_alone_and_count_their_own_steps() -> None:
    ours, theirs = weights(), weights()
    mine, timms = AdamP(ours, **SETTINGS), timm_adamp.AdamP(theirs, **SETTINGS)
    start = ours[1].detach().clone()
    for step in range(12):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            b.grad = None if i == 1 or (step + i) % 3 == 0 else torch.randn_like(b)
            a.grad = None if b.grad is None else b.grad.clone()
        mine.step()
        timms.step()
    assert_same(ours, theirs)
    assert torch.equal(ours[1], start)
    assert ours[1] not in mine.state


@pytest.mark.parametrize("source", ["ours", "timm"])
def test_a_saved_state_goes_on_where_it_was(source: str) -> None:
    ours, theirs = weights(channels_last=True), weights(channels_last=True)
    mine, timms = run(ours, theirs, 5)
    saved = deepcopy((mine if source == "ours" else timms).state_dict())
    for state in saved["state"].values():  # as a file gives it back: without the memory format
        state |= {name: state[name].contiguous() for name in ("exp_avg", "exp_avg_sq")}
    resumed = [nn.Parameter(p.detach().clone()) for p in theirs]
    fresh = AdamP(resumed, lr=1.0)
    fresh.load_state_dict(saved)
    for _ in range(5):
        for a, b in zip(resumed, theirs, strict=True):
            b.grad = torch.randn_like(b)
            a.grad = b.grad.clone(memory_format=torch.contiguous_format)  # not laid out as the weights are
        fresh.step()
        timms.step()
    assert_same(resumed, theirs)
    assert set(fresh.state_dict()["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}


def trained(params: list[nn.Parameter], optimizer: AdamP, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        for i, p in enumerate(params):
            p.grad = gradient(p, (step + i) % 4)
        optimizer.step()


def reread(state: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A state written to a file and read from it, and the size of the file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True), len(file.getbuffer())


@pytest.mark.parametrize("channels_last", [False, True])
def test_going_on_from_a_file_gives_the_same_bits_as_going_on(channels_last: bool) -> None:
    params = weights(channels_last=channels_last)
    optimizer = AdamP(params, **SETTINGS)
    trained(params, optimizer, range(5))
    resumed = [nn.Parameter(p.detach().clone()) for p in params]
    fresh = AdamP(resumed, lr=1.0)
    fresh.load_state_dict(reread(optimizer.state_dict())[0])
    trained(params, optimizer, range(5, 10))
    trained(resumed, fresh, range(5, 10))
    assert all(torch.equal(a, b) for a, b in zip(params, resumed, strict=True))
    for a, b in zip(params, resumed, strict=True):
        assert all(torch.equal(optimizer.state[a][name], fresh.state[b][name]) for name in ("exp_avg", "exp_avg_sq"))


def test_a_saved_state_is_as_large_as_its_numbers() -> None:
    params = [nn.Parameter(torch.randn(64, 100)) for _ in range(20)]
    optimizer = AdamP(params)
    trained(params, optimizer, range(2))
    _, size = reread(optimizer.state_dict())
    assert size < 1.1 * 2 * 4 * 20 * 64 * 100


def test_the_state_of_one_optimizer_is_left_alone_by_another_that_went_on_from_it() -> None:
    params, others = weights(), weights()
    first, second = AdamP(params, **SETTINGS), AdamP(others, **SETTINGS)
    trained(params, first, range(3))
    before = deepcopy(first.state_dict()["state"])
    second.load_state_dict(first.state_dict())
    trained(others, second, range(3))
    after = first.state_dict()["state"]
    assert all(torch.equal(after[i][name], before[i][name]) for i in before for name in ("exp_avg", "exp_avg_sq"))


def test_a_copied_optimizer_goes_on_alone() -> None:
    model = nn.Linear(3, 4)
    optimizer = AdamP(model.parameters(), **SETTINGS)
    trained(list(model.parameters()), optimizer, range(3))
    copied, its_optimizer = deepcopy((model, optimizer))
    trained(list(copied.parameters()), its_optimizer, range(3, 6))
    trained(list(model.parameters()), optimizer, range(3, 6))
    assert torch.equal(model.weight, copied.weight)


def test_gradients_of_1x1_kernels_are_copied_in_the_strides_that_they_come_with() -> None:
    ours, theirs = ([nn.Parameter(p.detach().clone()) for p in weights()] for _ in range(2))
    mine, timms = AdamP(ours, **SETTINGS), timm_adamp.AdamP(theirs, **SETTINGS)
    for step in range(4):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            a.grad = b.grad = torch.randn_like(b)
            if i == 1 and step > 1:
                a.grad = b.grad.as_strided((16, 8, 1, 1), (8, 1, 8, 8))
        mine.step()
        timms.step()
    assert_same(ours, theirs)
    [memory] = mine._memories.values()  # kernels over many tensors are used only if all strides are the same
    assert [part.stride() for part in memory.grad_parts] == [
        p.grad.stride() for p in memory.params if p.grad is not None
    ]


def test_empty_parameters_and_vectors_alone_agree() -> None:
    for shapes in ([(0, 3)], [(0,), (5,), ()], [(3, 0), (3, 2), (2,)]):
        ours, theirs = ([nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
        mine, timms = AdamP(ours, **SETTINGS), timm_adamp.AdamP(theirs, **SETTINGS)
        for _ in range(3):
            for a, b in zip(ours, theirs, strict=True):
                a.grad = torch.randn_like(a)
                b.grad = a.grad.clone() if b.numel() else None  # timm looks for the largest of no cosines
            mine.step()
            timms.step()
        assert_same(ours, theirs)


def test_weights_that_are_views_of_others_agree() -> None:
    ours = [nn.Parameter(torch.arange(12.0).view(3, 4).t())]
    theirs = [nn.Parameter(torch.arange(12.0).view(3, 4).t())]
    run(ours, theirs, 10)
    assert_same(ours, theirs)


def test_a_closure_is_called_with_gradients_and_its_loss_returned() -> None:
    p = nn.Parameter(torch.ones(2, 2))
    optimizer = AdamP([p], lr=0.1)

    def closure() -> float:
        loss = p.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 4.0
    assert bool((p < 1).all())


def launches(optimizer: torch.optim.Optimizer) -> int:
    """Operations that a device would be sent in a step, a ``foreach`` over many tensors counted as one."""
    views = {"aten::as_strided", "aten::view", "aten::slice", "aten::select", "aten::empty", "aten::unbind"}
    views |= {"aten::unsqueeze", "aten::reshape", "aten::expand", "aten::detach", "aten::new_empty", "aten::alias"}
    optimizer.step()
    with torch.profiler.profile() as profile:
        optimizer.step()
    events = [e for e in profile.events() if e.name.startswith("aten::") and e.name not in views]
    return sum(1 for e in events if e.cpu_parent is None or not e.cpu_parent.name.startswith("aten::"))


def test_a_step_is_sent_in_far_fewer_operations_and_never_asks_for_a_value() -> None:
    class Asked(Exception):
        pass

    class NeverAsked(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") in (
                "item",
                "__bool__",
                "__float__",
                "__int__",
                "tolist",
                "nonzero",
                "cpu",
            ):
                raise Asked(func.__name__)
            return func(*args, **(kwargs or {}))

    def prepared(kind: Any) -> Any:
        shapes = [(64, 32, 3, 3), (64,), (64,), (64, 64, 1, 1), (64,), (64,)] * 10
        params = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        for p in params:
            p.grad = torch.randn_like(p)
        return kind(params, **SETTINGS)

    mine, timms = prepared(AdamP), prepared(timm_adamp.AdamP)
    assert launches(mine) < launches(timms) / 20
    with NeverAsked():
        mine.step()
        with pytest.raises(Asked):
            timms.step()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_it_never_waits_and_agrees() -> None:
    ours = [nn.Parameter(p.detach().cuda()) for p in weights(channels_last=True)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    run(ours, theirs)
    assert_same(ours, theirs)
    optimizer = AdamP(ours, **SETTINGS)
    optimizer.step()  # places its index once
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_state_of_another_optimizer_or_of_other_parameters_is_refused() -> None:
    def stepped(kind: type, size: int) -> Optimizer:
        weight = torch.nn.Parameter(torch.ones(size))
        weight.grad = torch.ones(size)
        optimizer = SGD([weight], lr=0.1, momentum=0.9) if kind is SGD else AdamP([weight], lr=0.1)
        optimizer.step()
        return optimizer

    for kind, other in ((SGD, AdamP), (AdamP, SGD)):
        own = stepped(kind, 2)
        restore_optimizer(own, stepped(kind, 2).state_dict())
        with pytest.raises(ValueError, match="other parameters"):
            restore_optimizer(own, stepped(kind, 3).state_dict())
        with pytest.raises(KeyError):
            restore_optimizer(own, stepped(other, 2).state_dict())
        for missing in dict(stepped(kind, 2).state_dict()["state"][0]):
            damaged = stepped(kind, 2).state_dict()
            del damaged["state"][0][missing]
            with pytest.raises(ValueError, match="other parameters"):
                restore_optimizer(own, damaged)
