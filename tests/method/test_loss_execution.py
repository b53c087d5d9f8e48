"""How the loss runs: compiled, under autocast, without a loop over rows and without waiting for the device."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from selftaught.method import STMLLoss

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))
    or os.environ.get("ATEN_CPU_CAPABILITY") == "default",
    reason="torch.compile needs a C++ compiler, and fails where its vectors are switched off",
)
WAITS = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero", "aten::masked_select"}


def batch(n: int = 32, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two views of n / 2 images, with equal rows in f and g: f, g, teacher, ids."""
    torch.manual_seed(0)
    f, g, teacher = (torch.randn(n, width, dtype=torch.float64) for width in (8, 16, 16))
    f[5], g[6] = f[2], g[1]
    return f.to(dtype).requires_grad_(), g.to(dtype).requires_grad_(), teacher.to(dtype), torch.arange(n // 2).repeat(2)


def value_and_gradients(
    loss: Callable[..., Any], f: Tensor, g: Tensor, teacher: Tensor, ids: Tensor
) -> tuple[Tensor, ...]:
    total = loss(f, g, teacher, ids).total
    return total.detach(), *torch.autograd.grad(total, (f, g))


class Calls(TorchDispatchMode):
    """Counts the operators that run, backward ones too."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[func._schema.name] += 1
        if func._schema.name == "aten::index":
            assert all(index is None or index.dtype == torch.long for index in args[1]), "indexing by a mask waits"
        return func(*args, **(kwargs or {}))


def operators(loss: STMLLoss, n: int) -> Counter[str]:
    inputs, calls = batch(n), Calls()
    with calls:
        value_and_gradients(loss, *inputs)
    return calls.count


LOSSES = {"official": STMLLoss(4), "paper": STMLLoss(4, reduction="samples", include_self=False, group_views=False)}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_number_of_operators_does_not_depend_on_the_batch(loss: STMLLoss) -> None:
    few = operators(loss, 8)
    assert few.total() > 20
    assert few == operators(loss, 64)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_no_value_is_read_back_from_the_device(loss: STMLLoss) -> None:
    assert not WAITS & operators(loss, 16).keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_changes_neither_loss_nor_gradient(dtype: torch.dtype) -> None:
    inputs = batch(dtype=dtype)
    plain = value_and_gradients(STMLLoss(4), *inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = STMLLoss(4)(*inputs)
        inside = value_and_gradients(STMLLoss(4), *inputs)
    assert all(part.dtype == torch.float32 for part in losses)
    for found, expected in zip(inside, plain, strict=True):
        assert torch.equal(found, expected)


@needs_compiler
def test_compiled_loss_equals_eager_also_where_rows_coincide() -> None:
    """The shapes are those of a compiled run in the tests of training: what the compiler made serves both."""
    torch.compiler.reset()
    inputs = batch(16)
    expected = value_and_gradients(STMLLoss(4), *inputs)
    found = value_and_gradients(torch.compile(STMLLoss(4), fullgraph=True, dynamic=False), *inputs)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_loss_never_waits_for_the_gpu(loss: STMLLoss) -> None:
    inputs = [x.detach().cuda() for x in batch()]
    f, g, teacher, ids = inputs[0].requires_grad_(), inputs[1].requires_grad_(), *inputs[2:]
    value_and_gradients(loss, f, g, teacher, ids)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        value_and_gradients(loss, f, g, teacher, ids)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_gpu_in_float32_equals_cpu_in_float64(loss: STMLLoss) -> None:
    f, g, teacher, ids = batch(64, torch.float64)
    expected = value_and_gradients(loss, f, g, teacher, ids)
    small = [x.detach().float().cuda().requires_grad_() for x in (f, g)]
    found = value_and_gradients(loss, small[0], small[1], teacher.float().cuda(), ids.cuda())
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item())
