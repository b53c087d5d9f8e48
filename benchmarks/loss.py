"""Time of one step of the loss, forward and backward, against the same computed with a loop over rows.

    python benchmarks/loss.py [--quick] [--threads 1]

There are two references. "rows" computes every equation row by row, with tensor operations on one row at a time.
"one loop" does what the released code of the paper does, no slower: distances by ``torch.cdist``, everything
vectorized but the overlap of the neighborhoods (Eq. 7), and each loss on its own, so that the similarity is computed
once per head and the distances of a head once per loss. All sides take turns within one run; a time is the median
over the turns. Before that, their losses and gradients must agree.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from turns import take_turns

from selftaught.method import STMLLoss

K, SIGMA, DELTA = 10, 3.0, 1.0
WANTED = 10.0
"""How many times faster than the loop the loss is to be at n = 240."""


def similarity_by_rows(teacher: Tensor, ids: Tensor) -> Tensor:
    """Eqs. 5–10 with the loop over rows."""
    teacher = F.normalize(teacher)
    pairwise = torch.exp(-torch.cdist(teacher, teacher).square() / SIGMA)
    closeness = pairwise.clone()
    closeness[ids[:, None] == ids[None, :]] = 1
    neighbors = closeness.topk(K, dim=1).indices
    within = torch.zeros_like(pairwise).scatter_(1, neighbors, 1)
    reciprocal = within * within.T
    overlap = torch.zeros_like(pairwise)
    for i in range(len(teacher)):
        others = torch.where(reciprocal[i] != 0)[0]
        overlap[i, others] = (reciprocal[:, others].sum(1) / len(others))[others]
    expanded = overlap[neighbors[:, : round(K / 2)]].mean(1)
    return (pairwise + (expanded + expanded.T) / 2) / 2


def relative(z: Tensor) -> Tensor:
    d = torch.cdist(z, z)
    return d / d.mean(1, keepdim=True)


def contrastive_by_rows(z: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    """Eq. 1 for one head."""
    n = len(z)
    d = relative(z)
    with torch.no_grad():
        weights = similarity_by_rows(teacher, ids)
        others = 1 - torch.eye(n, device=z.device)
        pull, push = weights * others, (1 - weights) * others
    return ((d.square() * pull).sum() + ((DELTA - d).relu().square() * push).sum()) / (n * (n - 1))


def reference(f: Tensor, g: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    """Eq. 3 from its three losses."""
    contrastive = (contrastive_by_rows(f, teacher, ids) + contrastive_by_rows(g, teacher, ids)) / 2
    target = (-relative(g.detach())).log_softmax(1)
    return contrastive + F.kl_div((-relative(f)).log_softmax(1), target, log_target=True, reduction="batchmean")


def row_by_row(f: Tensor, g: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
    """Eq. 3 with every equation computed one row at a time."""
    n = len(f)
    rows = range(n)
    with torch.no_grad():
        t = F.normalize(teacher)
        pairwise = [(-(t - t[i]).square().sum(1) / SIGMA).exp() for i in rows]
        closeness = [torch.where(ids == ids[i], 1.0, pairwise[i]) for i in rows]
        neighbors = [closeness[i].topk(K).indices for i in rows]
        within = torch.stack([torch.zeros(n, device=f.device).index_fill(0, neighbors[i], 1) for i in rows])
        mutual = torch.stack([within[i] * within[:, i] for i in rows])
        overlap = torch.stack([mutual[i] * (mutual @ mutual[i]) / mutual[i].sum() for i in rows])
        expanded = torch.stack([overlap[neighbors[i][: round(K / 2)]].mean(0) for i in rows])
        weights = [(pairwise[i] + (expanded[i] + expanded[:, i]) / 2) / 2 for i in rows]
    total = torch.zeros((), device=f.device)
    for i in rows:
        others = torch.arange(n, device=f.device) != i
        relative_rows = []
        for z in (f, g):
            d = torch.where(others, torch.where(others, (z - z[i]).square().sum(1), 1).sqrt(), 0)
            d = d / d.mean()
            pairs = weights[i] * d.square() + (1 - weights[i]) * (DELTA - d).relu().square()
            total = total + (pairs * others).sum() / (2 * n * (n - 1))
            relative_rows.append(d)
        target = (-relative_rows[1].detach()).log_softmax(0)
        total = total + F.kl_div((-relative_rows[0]).log_softmax(0), target, log_target=True, reduction="sum") / n
    return total


def inputs(n: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two views of n / 2 images in clusters of five images."""
    torch.manual_seed(0)
    images = n // 2
    f, g, teacher = torch.randn(n, 512), torch.randn(n, 1024), torch.randn(n, 1024)
    centers = torch.randn(images // 5, 1024)
    teacher = 0.5 * teacher + centers[torch.arange(images) % len(centers)].repeat(2, 1)
    ids = torch.arange(images).repeat(2)
    return f.to(device).requires_grad_(), g.to(device).requires_grad_(), teacher.to(device), ids.to(device)


def compare(n: int, device: torch.device, turns: int) -> list[float]:
    """Median milliseconds of the two references and of ours."""
    f, g, teacher, ids = inputs(n, device)
    loss = STMLLoss(K, SIGMA, DELTA)

    def ours(f: Tensor, g: Tensor, teacher: Tensor, ids: Tensor) -> Tensor:
        return loss(f, g, teacher, ids).total  # type: ignore[no-any-return]

    sides = (row_by_row, reference, ours)

    def step(side: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
        total = side(f, g, teacher, ids)
        return total.detach(), *torch.autograd.grad(total, (f, g))

    for side in sides[:2]:
        for mine, theirs in zip(step(ours), step(side), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3 * theirs.abs().max().item())

    seconds = take_turns({side.__name__: partial(step, side) for side in sides}, turns)
    return [1000 * taken for taken in seconds.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description="The loss against a loop over rows.")
    parser.add_argument("--quick", action="store_true", help="n = 240 only, few turns")
    parser.add_argument("--threads", type=int, help="CPU threads; 1 is steadier on a busy machine")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, d_f = 512, d_g = 1024, float32")
    print(f"{'device':>6} {'n':>5} {'rows ms':>9} {'one loop ms':>12} {'ours ms':>9} {'rows':>8} {'one loop':>9}")
    verdicts = []
    for name in devices:
        for n in (240,) if options.quick else (240, 960):
            rows, loop, ours = compare(n, torch.device(name), 3 if options.quick or n > 240 else 9)
            ratios = f"{rows / ours:>7.1f}× {loop / ours:>8.1f}×"
            print(f"{name:>6} {n:>5} {rows:>9.2f} {loop:>12.2f} {ours:>9.2f} {ratios}", flush=True)
            if n == 240:
                verdict = "PASS" if rows / ours >= WANTED else "FAIL"
                verdicts.append(f"{verdict} at least {WANTED:.0f}× row by row at n = 240 on {name}")
    print("\n".join(verdicts))


if __name__ == "__main__":
    main()
