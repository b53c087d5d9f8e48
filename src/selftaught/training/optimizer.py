"""AdamP (Heo et al., ICLR 2021): Adam that does not let the norm of scale-invariant weights grow.

The update is that of ``timm.optim.adamp``, which asks the device after each tensor whether to project it. Here the
device decides for all tensors at once, and they lie side by side in flat memory: a step is some dozens of kernels,
however many tensors there are, and never waits.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from selftaught.training.row_layout import columns_of, lay_out

AVERAGES = ("exp_avg", "exp_avg_sq")


class AdamP(Optimizer):
    """Adam whose steps leave out the part along the weights, where the gradient says that their scale has no effect.

    Args:
        params: parameters, or groups of them with any of the following settings of their own.
        lr, betas, eps, weight_decay, nesterov: as in Adam; the decay is decoupled.
        delta: a tensor is projected if |cosine| of gradient and weights stays below delta / √(length of the vectors),
            in all its rows (channels), or else as a whole. Tensors of one dimension are never projected.
        wd_ratio: weight decay of projected tensors, as a fraction.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
        >>> weight.grad = torch.tensor([[4.0, -3.0]])  # at a right angle to the weights, as the step will be
        >>> AdamP([weight], lr=0.1).step()
        >>> [round(x, 3) for x in weight.tolist()[0]]
        [2.888, 4.084]
    """

    _memories: "Mapping[Any, _Memory]" = MappingProxyType({})  # of the class: copies start without memories

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        delta: float = 0.1,
        wd_ratio: float = 0.1,
        nesterov: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"delta": delta, "wd_ratio": wd_ratio, "nesterov": nesterov})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        alike: dict[Any, list[Tensor]] = {}
        for group in self.param_groups:
            settings = _Settings(tuple(group["betas"]), *(group[name] for name in _Settings._fields[1:]))
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    if not state:
                        state |= {"step": 0} | {name: torch.zeros_like(p) for name in AVERAGES}
                    state["step"] += 1
                    alike.setdefault((settings, p.dtype, p.device, group["lr"], state["step"]), []).append(p)
        memories = {}
        for (settings, dtype, device, lr, count), params in alike.items():
            key = settings, dtype, device, *map(id, params)
            memory = memories[key] = self._memories.get(key) or _Memory(params, settings)
            memory.adopt([self.state[p] for p in memory.params])
            memory.step(lr, count)
        self._memories = memories
        return loss


class _Settings(NamedTuple):
    """The constant options of all parameters in a memory; only the learning rate may change."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    delta: float
    wd_ratio: float
    nesterov: bool


class _Memory:
    """Parameters side by side, sorted by the length of their rows, with their averages and the buffers of a step.

    All buffers and views are made here once, since making a view takes longer than most of the kernels.
    """

    def __init__(self, params: list[Tensor], settings: _Settings) -> None:
        self.params = sorted(params, key=lambda p: (not columns_of(p), columns_of(p)))  # vectors last
        self.settings = settings
        self.size = -(-sum(p.numel() for p in self.params) // 64) * 64  # so that each row of ``work`` is aligned
        first = self.params[0]
        work = first.new_zeros(4, self.size)
        self.grads, self.products, self.weights, self.moves = work
        self.grad_parts, self.grad_strides = self._parts(self.grads), [_row_strides(p) for p in self.params]
        self.weight_parts = self._parts(self.weights)
        self.averages: tuple[Tensor, ...] = ()
        self.average_parts: tuple[list[Tensor], ...] = ([], [])

        self.layout = layout = lay_out(
            tuple((len(p), columns_of(p)) for p in self.params if columns_of(p)), first.dtype, first.device
        )
        self.vectors = self.weights[layout.size :]
        self.sums = first.new_zeros(4, layout.rows + 1 + layout.matrices)
        self.taken, self.kept = first.new_zeros(2, layout.rows)
        self.blocks = [
            _Block(
                pair=work[:2, start:end].view(2, -1, columns),
                weights=self.weights[start:end].view(-1, columns),
                moves=self.moves[start:end].view(-1, columns),
                grad_sums=self.sums[:2, rows],
                weight_sums=self.sums[2:, rows],
                taken=self.taken[rows, None],
                kept=self.kept[rows, None],
            )
            for start, end, columns, rows in layout.blocks
        ]
        self.channel_limit = settings.delta * layout.channel_limit
        self.layer_limit = settings.delta * layout.layer_limit
        self.eps = first.new_full((), settings.eps)
        self.plain, self.projected = first.new_zeros(2)

    def adopt(self, states: list[dict[str, Any]]) -> None:
        """Keep the averages of these states here, and leave views in their place."""
        if self.averages and all(
            state[name] is part
            for name, parts in zip(AVERAGES, self.average_parts, strict=True)
            for state, part in zip(states, parts, strict=True)
        ):
            return
        self.averages = self.moves.new_zeros(self.size), self.moves.new_zeros(self.size)
        self.average_parts = self._parts(self.averages[0]), self._parts(self.averages[1])
        for name, parts in zip(AVERAGES, self.average_parts, strict=True):
            torch._foreach_copy_(parts, [state[name] for state in states])
            for state, part in zip(states, parts, strict=True):
                state[name] = part

    def step(self, lr: float, count: int) -> None:
        """Change the parameters: first decay, then move, since timm rounds in this order."""
        rate, size = lr * self.settings.weight_decay, lr / (1 - self.settings.betas[0] ** count)
        self._find_moves(count)
        if self.blocks:
            self._find_factors(1 - rate, 1 - rate * self.settings.wd_ratio)
        for block in self.blocks:
            block.moves.addcmul_(block.weights, block.taken, value=-1)
            block.weights.mul_(block.kept)
        self.vectors.mul_(1 - rate)
        self.weights.add_(self.moves, alpha=-size)
        torch._foreach_copy_(self.params, self.weight_parts)

    def _find_moves(self, count: int) -> None:
        """Copy gradients and weights here, and fill ``moves`` with Adam's moves and ``sums`` with the sums of rows."""
        (beta1, beta2), (means, squares) = self.settings.betas, self.averages
        grads, products, weights, moves = self.grads, self.products, self.weights, self.moves
        self._copy_gradients()
        torch._foreach_copy_(self.weight_parts, self.params)
        means.lerp_(grads, 1 - beta1)
        ahead = torch.lerp(means, grads, 1 - beta1, out=moves) if self.settings.nesterov else means
        torch.mul(grads, weights, out=products)
        grads.square_()
        for block in self.blocks:
            torch.sum(block.pair, 2, out=block.grad_sums)
        squares.lerp_(grads, 1 - beta2)
        torch.sqrt(squares, out=products)
        torch.add(self.eps, products, alpha=(1 - beta2**count) ** -0.5, out=products)
        torch.div(ahead, products, out=moves)
        torch.mul(weights, weights, out=grads)
        torch.mul(weights, moves, out=products)
        for block in self.blocks:
            torch.sum(block.pair, 2, out=block.weight_sums)

    def _copy_gradients(self) -> None:
        grads = [p.grad for p in self.params if p.grad is not None]
        strides = [grad.stride() for grad in grads]
        if strides != self.grad_strides:  # 1×1 kernels may have other strides, which mean nothing for a single entry
            self.grad_strides = strides
            self.grad_parts = [
                self.grads.as_strided(part.shape, stride, part.storage_offset())
                if _same_places(part.shape, stride, part.stride())
                else part
                for part, stride in zip(self._parts(self.grads), strides, strict=True)
            ]
        torch._foreach_copy_(self.grad_parts, grads)

    def _find_factors(self, plain: float, projected: float) -> None:
        """Fill ``taken`` and ``kept``; decay multiplies weights by ``plain``, projected weights by ``projected``.

        The columns of ``sums`` are: the rows; one 0, for the empty places of the layout; room for whole matrices.
        """
        eps, layout, sums = self.settings.eps, self.layout, self.sums
        whole = slice(layout.rows + 1, None)
        torch.sum(sums[:, layout.places], 2, out=sums[:, whole])
        norms = sums[::2].sqrt()
        cosines = sums[1].abs() / norms.clamp(min=eps).prod(0)
        along = sums[3] / (norms[1] + eps).square()
        by_channel = cosines[layout.places].amax(1) < self.channel_limit
        by_layer = cosines[whole] < self.layer_limit
        taken = torch.where(by_layer, along[whole], 0)[layout.owners]
        torch.where(by_channel[layout.owners], along[: layout.rows], taken, out=self.taken)
        kept = torch.where(by_channel | by_layer, self.projected.fill_(projected), self.plain.fill_(plain))
        torch.index_select(kept, 0, layout.owners, out=self.kept)

    def _parts(self, flat: Tensor) -> list[Tensor]:
        """Views of flat memory in the shapes of the parameters, with their strides if these leave rows in one piece."""
        parts, start = [], 0
        for p in self.params:
            parts.append(flat.as_strided(p.shape, _row_strides(p), flat.storage_offset() + start))
            start += p.numel()
        return parts


class _Block(NamedTuple):
    """The rows of one length, in the memory."""

    pair: Tensor
    """2×rows×columns: two tensors that are summed together."""
    weights: Tensor
    moves: Tensor
    grad_sums: Tensor
    """2×rows: sums of the squares of gradients, and of their products with weights."""
    weight_sums: Tensor
    """2×rows: sums of the squares of weights, and of their products with moves."""
    taken: Tensor
    """rows×1: the multiple of the weights that is subtracted from the moves."""
    kept: Tensor
    """rows×1: the factor of the weights after decay."""


def _row_strides(p: Tensor) -> tuple[int, ...]:
    """Strides for a copy of p with its rows one after the other: p's own if possible, as in all usual formats."""
    formats = (torch.contiguous_format, *{4: (torch.channels_last,), 5: (torch.channels_last_3d,)}.get(p.ndim, ()))
    if any(p.is_contiguous(memory_format=form) for form in formats):
        return p.stride()
    return torch.empty(p.shape, device="meta").stride()


def _same_places(shape: tuple[int, ...], strides: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether both tuples of strides lead to the same places."""
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, others, strict=True))
