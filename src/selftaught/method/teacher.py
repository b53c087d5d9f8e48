"""Step 4: the teacher is a moving average of the student (Eq. 4)."""

import torch
from torch import Tensor, nn


class MovingAverage:
    """θ_t ← m θ_t + (1 - m) θ_s over parameters and floating buffers; integer buffers are copied.

    The student must have all of the teacher's names; its further names are left out.

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
        self._averaged: tuple[list[Tensor], list[Tensor]] = [], []
        self._copied: tuple[list[Tensor], list[Tensor]] = [], []
        for name, tensor in target.items():
            ours, theirs = self._averaged if tensor.is_floating_point() else self._copied
            ours.append(tensor)
            theirs.append(source[name])

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(*self._averaged, 1 - self.momentum)
        if self._copied[0]:
            torch._foreach_copy_(*self._copied)
