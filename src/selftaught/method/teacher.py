"""Step 4: the teacher is a moving average of the student (Eq. 4)."""

import torch
from torch import Tensor, nn


class MovingAverage:
    """θ_t ← m θ_t + (1 - m) θ_s over parameters and floating buffers; integer buffers are copied.

    The teacher's names must all be found in the student; what the student has beyond them is left out.

    Example:
        >>> import torch
        >>> teacher, student = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> _ = teacher.weight.data.fill_(0.0), student.weight.data.fill_(1.0)
        >>> MovingAverage(teacher, student, momentum=0.75).update()
        >>> teacher.weight.tolist()
        [[0.25, 0.25]]
    """

    def __init__(self, teacher: nn.Module, student: nn.Module, momentum: float) -> None:
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be within [0, 1], but is {momentum}")
        self.momentum = momentum
        source = dict(student.named_parameters()) | dict(student.named_buffers())
        target = dict(teacher.named_parameters()) | dict(teacher.named_buffers())
        pairs = [(tensor, source[name]) for name, tensor in target.items()]
        self._averaged: list[tuple[Tensor, Tensor]] = [pair for pair in pairs if pair[0].is_floating_point()]
        self._copied: list[tuple[Tensor, Tensor]] = [pair for pair in pairs if not pair[0].is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        if self._averaged:
            teacher, student = zip(*self._averaged, strict=True)
            torch._foreach_lerp_(teacher, student, 1 - self.momentum)
        for target, source in self._copied:
            target.copy_(source)
