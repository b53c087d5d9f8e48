"""Neighbor search and Recall@k up to a million images, and the listing of their files.

    python benchmarks/scale.py [--sizes 10000 100000] [--threads 2]
    python benchmarks/scale.py --listing [--sizes 100000 1000000]

1. For each size: time and peak memory beyond the embeddings (512 dimensions, in clusters) of an epoch's neighbor search
   (a fifth of the images, 4 neighbors each) and of Recall@k over all images, each in a process of its own, with the
   fitted exponents. On a CPU a part of the queries is asked, and the time is told for all of them.
   FAISS, if installed, with its recall against the exact neighbors.
2. On a GPU, 10⁶ embeddings with 2·10⁵ queries must take under 60 s and 8 GiB in all, the embeddings included. On a CPU
   the memory must stay under 1 GiB at every size.
3. With ``--listing``: time and peak memory of a process (PyTorch included, 250 MiB) that lists so many (empty) files of
   a temporary folder, finds them in a cache, as if they had been decoded before, and asks for an epoch of batches.
"""

import argparse
import math
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from selftaught.data import CachedReader, DecodedCache, ViewRequest, Views, find_images, view_seeds
from selftaught.data.decoded_images import DecodedImage
from selftaught.data.images import stamp
from selftaught.method import random_batches
from selftaught.retrieval import approximate_nearest, nearest, recall_against_exact, recall_at_k

T = TypeVar("T")
DIMENSIONS, NEIGHBORS, KS = 512, 4, (1, 2, 4, 8)
CPU_QUERIES, FAISS_QUERIES = 1000, 20_000
MOST_SECONDS, MOST_ON_GPU, MOST_ON_CPU = 60.0, 8 * 2**30, 2**30
MOST_LISTED = 2 * 2**30
FILES_IN_A_FOLDER = 1000


class Measured(NamedTuple):
    seconds: float
    """For all queries, also where a part was asked."""
    asked: int
    peak: int
    """Bytes beyond the embeddings."""
    total: int
    """Bytes with them, on a GPU."""
    note: str


def clusters(n: int, device: str) -> tuple[Tensor, Tensor]:
    """n embeddings in clusters of about 8 within larger groups, as things within categories, and each one's cluster.

    Made in parts, to leave the peak of memory to what is measured.
    """
    draw = torch.Generator(device).manual_seed(0)
    labels = torch.randint(max(1, n // 8), (n,), generator=draw, device=device)
    z = torch.empty(n, DIMENSIONS, device=device)
    for rows in torch.arange(n, device=device).split(8192):
        groups = -1 - labels[rows] % max(1, round(n**0.5 / 2))
        noise = torch.randn(len(rows), DIMENSIONS, generator=draw, device=device)
        z[rows] = _center(groups) + _center(labels[rows]) + 2.8 * noise
    return z, labels


def _center(number: Tensor) -> Tensor:
    """A point for each number, always the same: waves of as many frequencies as there are dimensions."""
    frequencies = torch.arange(1, DIMENSIONS + 1, device=number.device).double().sqrt()
    return (number[:, None].double() * frequencies).sin().float() * 2**0.5


def search(n: int, device: str, threads: int | None) -> Measured:
    """An epoch's neighbor search, exact."""
    z, _ = _prepared(n, device, threads)
    wanted = n // 5
    queries = torch.randperm(n, device=device)[: wanted if device == "cuda" else min(wanted, CPU_QUERIES)]

    def work() -> Tensor:
        return nearest(z[queries], z, NEIGHBORS, exclude=queries)[0]

    distances, seconds, peak, total = _measured(work, device)
    some = queries[:50]
    check = torch.cdist(z[some].double().cpu(), z.double().cpu()) if n <= 100_000 else None
    if check is not None:
        check[torch.arange(len(some)), some.cpu()] = torch.inf
        expected = check.topk(NEIGHBORS, largest=False).values
        torch.testing.assert_close(distances[: len(some)].double().cpu(), expected, rtol=1e-4, atol=1e-4)
    return Measured(seconds * wanted / len(queries), len(queries), peak, total, "")


def recall(n: int, device: str, threads: int | None) -> Measured:
    """Recall@k over all images, or on a CPU over some: an image that is alone in its class is not asked."""
    z, labels = _prepared(n, device, threads)
    if device == "cpu":
        labels = torch.where(labels < CPU_QUERIES // 8, labels, torch.arange(n, 2 * n))
    asked = int((torch.bincount(labels)[labels] > 1).sum())
    found, seconds, peak, total = _measured(lambda: recall_at_k(z, labels, KS), device)
    return Measured(seconds * n / asked, asked, peak, total, f"Recall@1 {found[1]:.3f}")


def faiss_search(n: int, device: str, threads: int | None) -> Measured:
    """An epoch's neighbor search by FAISS, on the CPU."""
    z, _ = _prepared(n, "cpu", threads)
    queries = torch.randperm(n)[: min(n // 5, FAISS_QUERIES if device == "cuda" else CPU_QUERIES)]
    (_, indices), seconds, peak, total = _measured(
        lambda: approximate_nearest(z[queries], z, NEIGHBORS, exclude=queries), "cpu"
    )
    z, some, found = z.to(device), queries[:500].to(device), indices[:500].to(device)
    part = recall_against_exact(z[some], z, found, exclude=some)
    return Measured(seconds, len(queries), peak, total, f"recall against exact {part:.3f}")


class Listed(NamedTuple):
    """Of so many files: seconds to list them, to find all in a cache, to plan an epoch; peak bytes of the process."""

    files: int
    listing: float
    finding: float
    planning: float
    peak: int


def listing(files: int) -> Listed:
    """List files, find them in a cache of decoded images, and ask for an epoch of batches."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            place = Path(folder) / f"folder {number // FILES_IN_A_FOLDER:05d}"
            if number % FILES_IN_A_FOLDER == 0:
                place.mkdir()
            (place / f"photo {number:09d}.jpg").touch()
        times = [time.perf_counter()]
        images = find_images(folder)
        images.labels()
        times.append(time.perf_counter())
        assert len(images) == files
        with tempfile.TemporaryDirectory() as cache:
            reader = CachedReader(Views(224, 256, 256), 336, 0, torch.device("cpu"), DecodedCache(folder, Path(cache)))
            kind = reader._decoder.kind("random")
            pixel = np.zeros((1, 1, 3), np.uint8)
            for number in range(files):  # as if decoded before
                image = images.path(number)
                reader.cache.add(kind, image, DecodedImage(pixel, (1, 1), stamp(image)))
            reader.cache.refresh()
            times.append(time.perf_counter())
            reader.prepare(images, None)
            times.append(time.perf_counter())
            asked = 0
            for step, batch in enumerate(random_batches(files, 120, torch.Generator()).tolist()):
                seeds = view_seeds(len(batch), 0, 0, step)
                requests = [ViewRequest(images.path(i), "random", seed) for i, seed in zip(batch, seeds, strict=True)]
                assert min(reader._find(requests)) >= 0
                asked += len(requests)
            times.append(time.perf_counter())
            reader.close()
        assert asked > files - 120
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return Listed(files, times[1] - times[0], times[3] - times[2], times[4] - times[3], peak)


def _prepared(n: int, device: str, threads: int | None) -> tuple[Tensor, Tensor]:
    if threads:
        torch.set_num_threads(threads)
    z, labels = clusters(n, device)
    nearest(z[:64], z[:8192], NEIGHBORS)  # what torch loads on first use is not the search's
    return z, labels


def _measured(work: Callable[[], T], device: str) -> tuple[T, float, int, int]:
    """What the work gives, its seconds, and its peak bytes beyond what was there and in all."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    before = torch.cuda.memory_allocated() if device == "cuda" else _resident()
    start = time.perf_counter()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    on_cpu = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = torch.cuda.max_memory_allocated() if device == "cuda" else on_cpu
    return result, seconds, total - before, total


def _resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def exponent(sizes: Sequence[int], values: Sequence[float]) -> str:
    """p of the best fit value ~ size^p."""
    if len(sizes) < 2:
        return "–"
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-9)) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    return f"{slope:.2f}"


def verdict(passed: bool, what: str) -> None:
    print("PASS" if passed else "FAIL", what)


def compare(sizes: Sequence[int], device: str, threads: int | None) -> None:
    works = {"neighbors": search, "Recall@k": recall} | ({"FAISS": faiss_search} if find_spec("faiss") else {})
    measured: dict[str, list[Measured]] = {name: [] for name in works}
    print(f"{'':>10} {'n':>8} {'queries':>8} {'s, all queries':>15} {'MiB beyond':>11}")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for n in sizes:
            for name, work in works.items():
                row = pool.apply(work, (n, device, threads))
                measured[name].append(row)
                seconds = f"{row.seconds:>15.2f}" if name != "FAISS" else f"{row.seconds:>9.2f} these"
                print(f"{name:>10} {n:>8} {row.asked:>8} {seconds} {row.peak / 2**20:>11.0f}  {row.note}", flush=True)
    for name, rows in measured.items():
        time_, memory = exponent(sizes, [row.seconds for row in rows]), exponent(sizes, [row.peak for row in rows])
        print(f"{name}: time ~ n^{time_}, memory ~ n^{memory}")
    exact = [(n, row) for name in ("neighbors", "Recall@k") for n, row in zip(sizes, measured[name], strict=True)]
    if device == "cpu":
        worst = max(row.peak for _, row in exact)
        verdict(worst < MOST_ON_CPU, f"memory bounded: at most {worst / 2**20:.0f} MiB beyond the embeddings")
    for n, row in zip(sizes, measured["neighbors"], strict=True):
        if device == "cuda" and n == 10**6:
            what = f"10⁶ × 512 with {row.asked} queries: {row.seconds:.1f} s, {row.total / 2**30:.2f} GiB in all"
            verdict(row.seconds < MOST_SECONDS and row.total < MOST_ON_GPU, f"{what}; wanted: 60 s, 8 GiB")


def list_files(sizes: Sequence[int]) -> None:
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for files in sizes:
            rows.append(pool.apply(listing, (files,)))
            row = rows[-1]
            print(
                f"{files:>8} files: listed in {row.listing:.1f} s, found in the cache in {row.finding:.1f} s, an epoch "
                f"of batches asked for in {row.planning:.1f} s; the whole process has {row.peak / 2**20:,.0f} MiB",
                flush=True,
            )
    verdict(rows[-1].peak < MOST_LISTED, f"{sizes[-1]:,} files: {rows[-1].peak / 2**20:,.0f} MiB, under 2 GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Neighbor search and Recall@k up to a million images.")
    parser.add_argument("--sizes", type=int, nargs="+", help="embeddings, or files (default: what the device can do)")
    parser.add_argument("--listing", action="store_true", help="the listing of files instead")
    parser.add_argument("--threads", type=int, help="CPU threads")
    options = parser.parse_args()
    if options.listing:
        list_files(sorted(options.sizes or (100_000, 1_000_000)))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else f"{options.threads or torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {device}, {name}; {DIMENSIONS} dimensions, float32")
    sizes = options.sizes or [10**4, 10**5, *([10**6] if device == "cuda" else [])]
    compare(sorted(sizes), device, options.threads)


if __name__ == "__main__":
    main()
