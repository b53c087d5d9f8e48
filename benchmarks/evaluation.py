"""Memory and time of the exact evaluation.

    python benchmarks/evaluation.py [--size 60000] [--threads 1]

1. All metrics over ``size`` embeddings of 512 dimensions: the peak memory beyond the embeddings themselves, in
   a process of its own, must stay under 2 GiB.
2. The same metrics at a size where the full matrix of distances fits, against plain code that holds it
   (cdist, the diagonal masked, topk). The two take turns within one run; they must agree, and ours must not be slower.
"""

import argparse
import multiprocessing
import resource
import time

import torch
from torch import Tensor
from turns import take_turns

from selftaught.retrieval import Scores, score

DIMENSIONS = 512
KS = (1, 2, 4, 8)
MOST_MEMORY = 2 * 2**30


def clusters(n: int, device: str) -> tuple[Tensor, Tensor]:
    """n embeddings in classes of 5 to 12 images, noisy enough that the scores are far from 0 and 1."""
    torch.manual_seed(0)
    sizes = torch.randint(5, 13, (n // 5 + 1,))
    labels = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[:n][torch.randperm(n)]
    centers = torch.randn(int(labels.max()) + 1, DIMENSIONS)
    z = torch.randn(n, DIMENSIONS).mul_(1.9)
    for rows in torch.arange(n).split(4096):  # in parts, to leave the peak of memory to the evaluation
        z[rows] += centers[labels[rows]]
    return z.to(device), labels.to(device)


def full_matrix(z: Tensor, labels: Tensor) -> Scores:
    """The plain way: n×n distances at once."""
    distances = torch.cdist(z, z).fill_diagonal_(torch.inf)
    others = torch.bincount(labels)[labels] - 1
    depth = max(int(others.max()), *KS)
    right = labels[distances.topk(depth, largest=False).indices] == labels[:, None]
    asked = others > 0
    right, r = right[asked], others[asked, None]
    ranks = torch.arange(1, depth + 1, device=z.device)
    found = (right & (ranks <= r)).double()
    return Scores(
        recall={k: right[:, :k].any(1).double().mean().item() for k in KS},
        map_at_r=((found * found.cumsum(1) / ranks).sum(1) / r[:, 0]).mean().item(),
        r_precision=(found.sum(1) / r[:, 0]).mean().item(),
        queries=len(r),
        excluded=len(z) - len(r),
    )


def measured_score(n: int, device: str, threads: int | None) -> tuple[Scores, float, int]:
    """The scores of n embeddings, the seconds they took and the peak bytes beyond the embeddings."""
    if threads:
        torch.set_num_threads(threads)
    z, labels = clusters(n, device)
    score(z[:64], torch.zeros(64, dtype=torch.long))  # what torch loads on first use is not the evaluation's
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = _peak(device)
    start = time.perf_counter()
    scores = score(z, labels, KS)
    return scores, time.perf_counter() - start, _peak(device) - before


def _peak(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def compare(n: int, device: str, turns: int = 9) -> tuple[float, float]:
    """Median seconds of the full matrix and of ours, after checking that they agree."""
    z, labels = clusters(n, device)
    theirs, ours = full_matrix(z, labels), score(z, labels, KS)
    for a, b in zip(_numbers(theirs), _numbers(ours), strict=True):
        assert abs(a - b) < 1e-3, f"the full matrix gives {theirs}, the blocks {ours}"
    sides = {"full matrix": lambda: full_matrix(z, labels), "ours": lambda: score(z, labels, KS)}
    seconds = take_turns(sides, turns)
    return seconds["full matrix"], seconds["ours"]


def _numbers(scores: Scores) -> list[float]:
    return [*scores.recall.values(), scores.map_at_r, scores.r_precision, scores.queries, scores.excluded]


def verdict(passed: bool) -> str:
    return "PASS" if passed else "FAIL"


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and time of the exact evaluation.")
    parser.add_argument("--size", type=int, default=60_000, help="embeddings of the memory test")
    parser.add_argument("--compare-size", type=int, default=8_000, help="embeddings of the comparison")
    parser.add_argument("--threads", type=int, help="CPU threads; 1 is steadier on a busy machine")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        scores, seconds, peak = pool.apply(measured_score, (options.size, device, options.threads))
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} CPU threads")
    recall = ", ".join(f"{k}: {value:.4f}" for k, value in scores.recall.items())
    print(f"{options.size} × {DIMENSIONS}: Recall@k {recall}; MAP@R {scores.map_at_r:.4f}; ", end="")
    print(
        f"R-Precision {scores.r_precision:.4f}; {scores.queries} queries, {scores.excluded} excluded; {seconds:.1f} s"
    )
    print(f"{verdict(peak < MOST_MEMORY)} peak memory beyond the embeddings {peak / 2**20:.0f} MiB, under 2 GiB")
    theirs, ours = compare(options.compare_size, device)
    print(f"{options.compare_size} × {DIMENSIONS}: full matrix {theirs:.3f} s, ours {ours:.3f} s, the same scores")
    print(f"{verdict(ours <= theirs)} not slower than the full matrix: {theirs / ours:.2f}×")


if __name__ == "__main__":
    main()
