"""Networks, losses and crops through ``torch.compile``, or uncompiled where that does not work."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import async_compile

from selftaught.learners import STML, VIEWS, Learner
from selftaught.networks import Encoder
from selftaught.parallel import shard
from selftaught.training.assemble import Parts
from selftaught.training.fabric import Fabric
from selftaught.training.gradient_parts import looked_at_once, part_size


@contextmanager
def compiled(parts: Parts, wanted: bool) -> Iterator[None]:
    """Within this context, the learner's encoders and loss are compiled, for training and embedding, if asked for.

    Compiling comes right before the first step: by then all images are known to be readable, and the processes that
    read them, which compilers would disturb, have started. Afterwards nothing is compiled any more: each other size of
    input would have to be compiled again.
    """
    if not wanted or not parts.settings.compile:
        yield
        return
    before = [(part, part._compiled_call_impl) for part in parts.learner.modules()]
    try:
        with parts.context.interrupts.at_once():  # a compiler waits forever for workers that a signal has ended
            parts.evaluation.compiled = _compile(parts)
        if not parts.evaluation.compiled:
            _restore(before)
            parts.reader.uncompile()
        yield
    finally:
        _restore(before)


def _restore(before: list[tuple[nn.Module, Any]]) -> None:
    for part, call in before:
        part._compiled_call_impl = call


def _compile(parts: Parts) -> bool:
    """Compile, and run each compiled part once; returns whether that worked.

    Nothing else of the learner changes: not its weights, statistics or gradients, nor the random state.
    """
    learner, fabric, say = parts.learner, parts.fabric, parts.context.reporter.say
    batch_size = parts.settings.batch_size
    assert batch_size is not None
    torch._dynamo.reset()  # what an earlier run compiled would count toward a limit
    encoders = compile_parts(learner, fabric.device)
    for name in ("torch._inductor", "torch._dynamo"):
        logging.getLogger(name).setLevel(logging.ERROR)
    say("compiling networks and loss, which takes a minute or two; the next time less")
    try:
        with _unchanged(encoders, fabric.device):
            rows = VIEWS * len(shard(batch_size))
            for encoder in encoders:
                _try(encoder, fabric, part_size(parts.settings), rows, parts.evaluation.batch_size)
            if isinstance(learner, STML):
                _try_loss(learner, fabric, VIEWS * batch_size)
            parts.reader.compile(batch_size)
    except KeyboardInterrupt:
        _end_compilers()
        raise
    except Exception as error:  # compilers and their environments can raise anything
        reason = " ".join(str(error).split("\n")[:2])[:200]  # the rest helps only authors of compilers
        say(f"going on without torch.compile, which failed: {type(error).__name__}: {reason}")
        torch._dynamo.reset()
        return False
    finally:
        learner.zero_grad()
    with suppress(Exception):  # the compiler's processes and threads are no longer needed, and hinder new processes
        async_compile.shutdown_compile_workers()
    return True


def compile_parts(learner: Learner, device: torch.device) -> list[Encoder]:
    """Have the encoders and the loss compiled when they are first called; returns the encoders."""
    encoders = [part for part in learner.modules() if isinstance(part, Encoder)]
    for encoder in encoders:
        encoder.compile(dynamic=False)
    if isinstance(learner, STML):
        # On a GPU the loss is many small kernels, which a CUDA graph starts all at once.
        learner.criterion.compile(dynamic=False, mode="reduce-overhead" if device.type == "cuda" else None)
    return encoders


def _end_compilers() -> None:
    """End the compiler's processes: the signal has reached them too, and Python would wait for them when it exits."""
    with suppress(Exception):  # torch does not document where it keeps them
        pool = async_compile.AsyncCompile.process_pool
        if pool.cache_info().currsize:
            pool().process.kill()  # type: ignore[union-attr]


def _try(encoder: Encoder, fabric: Fabric, part: int | None, rows: int, embedded: int) -> None:
    """Run an encoder once in each way that training will, with the same shapes."""
    inputs = encoder.preprocessing
    views = _black(looked_at_once(rows, part) if part else rows, inputs.size, fabric.device)
    with fabric.autocast():
        if any(parameter.requires_grad for parameter in encoder.parameters()):
            encoder(views[:part]).sum().backward()
            if part is not None:  # then all views are first embedded without a gradient
                with torch.no_grad():
                    encoder(views)
            encoder.eval()
            views = _black(embedded, inputs.squash, fabric.device)
        with torch.no_grad():
            encoder(views)


def _try_loss(learner: STML, fabric: Fabric, rows: int) -> None:
    """Run the loss and its gradient as training will, on random embeddings."""
    learned = {
        name: torch.randn(rows, head.out_features, device=fabric.device, requires_grad=True)
        for name, head in learner.network.heads.items()
        if isinstance(head, nn.Linear)
    }
    ids = torch.arange(rows // VIEWS, device=fabric.device).repeat(VIEWS)
    for _ in range(3):  # a CUDA graph is recorded after the first time
        with fabric.autocast():
            loss = learner.loss({**learned, "teacher": learned["g"].detach()}, ids)["loss"]
        torch.autograd.grad(loss, list(learned.values()))  # not backward(): it would overwrite kept gradients


def _black(count: int, size: int, device: torch.device) -> Tensor:
    return torch.zeros(count, 3, size, size, dtype=torch.uint8, device=device)


@contextmanager
def _unchanged(encoders: list[Encoder], device: torch.device) -> Iterator[None]:
    """Afterwards the encoders' modes and buffers, and the random state, are as before."""
    modes = [encoder.training for encoder in encoders]
    buffers = [copy.deepcopy(dict(encoder.named_buffers())) for encoder in encoders]
    try:
        cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(cuda), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for encoder, mode, before in zip(encoders, modes, buffers, strict=True):
            encoder.train(mode)
            with torch.no_grad():
                for name, buffer in encoder.named_buffers():
                    buffer.copy_(before[name])
