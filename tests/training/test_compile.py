import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from conftest import TINY
from selftaught import train
from selftaught.networks import Encoder
from selftaught.run_folder import METRICS

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


def numbers(run: Path) -> list[float]:
    import json

    rows = map(json.loads, (run / METRICS).read_text().splitlines())
    return [value for row in rows for name, value in row.items() if name in ("loss", "contrastive", "distillation")]


class OneLayer(nn.Sequential):
    """A backbone of which little is to be compiled."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 16, 5, stride=8, bias=False), nn.BatchNorm2d(16), nn.ReLU())


@needs_compiler
def test_a_compiled_run_learns_the_same_and_its_model_is_not_compiled(photos: Path, tmp_path: Path) -> None:
    backbone = OneLayer()
    settings: dict[str, Any] = {"epochs": 2, "quiet": True, **TINY}
    train(photos, out=tmp_path / "plain", **settings | {"backbone": copy.deepcopy(backbone)})
    model = train(photos, out=tmp_path / "compiled", compile=True, **settings | {"backbone": backbone})
    assert all(part._compiled_call_impl is None for part in model.network.modules()), "any number of images is embedded"
    torch._dynamo.reset()
    assert numbers(tmp_path / "compiled") == pytest.approx(numbers(tmp_path / "plain"), rel=1e-2)
    plain, compiled = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "compiled"))
    assert plain.keys() == compiled.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(compiled[name], tensor, rtol=1e-2, atol=1e-3)


REFERENCE = {"input": "files", "precision": "32-true", "compile": False}
FAST: dict[str, tuple[dict[str, Any], float]] = {
    "decoded": ({"cache_side": 70}, 2e-3),
    "bfloat16": ({"cache_side": 70, "precision": "bf16-mixed"}, 2e-2),
}
"""What is fast, and how near its losses are to the reference's: decoded images give the same views, bfloat16 rounds."""


@pytest.mark.parametrize("fast", FAST)
def test_fast_training_learns_what_the_reference_learns(photos: Path, tmp_path: Path, fast: str) -> None:
    changes, near = FAST[fast]
    for name, more in {"slow": REFERENCE, "fast": changes}.items():
        train(photos, out=tmp_path / name, epochs=3, quiet=True, **{**TINY, **more})
    losses = {name: numbers(tmp_path / name)[::3] for name in ("slow", "fast")}
    assert len(losses["fast"]) == 3
    assert losses["fast"] == pytest.approx(losses["slow"], rel=near)
    assert (losses["fast"] == losses["slow"]) == (fast == "decoded")


def test_a_compiler_that_fails_is_told_and_done_without(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no compiler here\nand much more about it")

    settings: dict[str, Any] = {"epochs": 1, **TINY}
    train(photos, out=tmp_path / "plain", quiet=True, **settings)
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", fail)
    train(photos, out=tmp_path / "run", compile=True, **settings)
    said = capfd.readouterr().err
    assert "going on without torch.compile, which failed" in said
    assert "no compiler here" in said
    assert "and much more" not in said
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "run")]
    assert models[0] == models[1]


@pytest.mark.gpu
def test_compiled_training_on_a_gpu_does_not_make_the_host_wait(photos: Path, tmp_path: Path) -> None:
    """One epoch's steps, but for the first, which may."""
    from selftaught.training import loop

    real, steps = loop.Loop._step, 0

    def step(self: loop.Loop, images: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        nonlocal steps
        steps += 1
        torch.cuda.set_sync_debug_mode("error" if steps > 2 else "default")
        try:
            return real(self, images, indices)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Loop, "_step", step)
        train(photos, out=tmp_path / "run", epochs=2, device="cuda", quiet=True, compile=True, **TINY)
    assert steps == 6


def test_a_compiler_that_fails_late_leaves_no_gradients_behind(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no graphs here")

    settings: dict[str, Any] = {"epochs": 1, "quiet": True, **TINY}
    train(photos, out=tmp_path / "plain", **settings)
    monkeypatch.setattr(
        "selftaught.training.compile.compile_parts",
        lambda learner, _: [part for part in learner.modules() if isinstance(part, Encoder)],
    )
    monkeypatch.setattr("selftaught.training.compile._try_loss", fail)
    train(photos, out=tmp_path / "run", compile=True, **settings)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "run")]
    assert models[0] == models[1]


def test_a_module_that_its_owner_has_compiled_stays_compiled(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, *_, **__: graph.forward)
    module = OneLayer()
    module.compile(backend="eager", dynamic=True)
    compiled = module._compiled_call_impl
    assert compiled is not None
    train(photos, out=tmp_path / "run", epochs=1, compile=True, **TINY | {"backbone": module})
    assert "going on without torch.compile" not in capfd.readouterr().err
    assert module._compiled_call_impl is compiled
    torch._dynamo.reset()
