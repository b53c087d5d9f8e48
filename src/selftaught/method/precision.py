"""Similarity and losses in float32 or better, even inside a caller's autocast."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from selftaught.retrieval import full_precision

P = ParamSpec("P")
R = TypeVar("R")


def in_full_precision(function: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Tensor, P], R]:
    """The function with autocast off and the first argument in float32 (float64 stays)."""

    @wraps(function)
    def run(x: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast(x.device.type, enabled=False):
            return function(full_precision(x), *args, **kwargs)

    return run
