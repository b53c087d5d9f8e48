"""Memory and speed of training in parts, beside whole batches of the paper's size (240 views).

    python benchmarks/memory.py [--backbone resnet50] [--limit 6] [--rows N] [--device cuda]

Each way runs in a process of its own, on drawn photos with random weights: whole batches, then parts under the limit in
GiB. On a GPU the limit is set on the process, and training finds out by itself how many views fit; on a CPU, where a
process cannot be limited, ``--rows`` says it. The time is the median of an epoch's steps, the memory the most that the
process ever held.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from selftaught.data import make_products
from selftaught.run_folder import read_record
from selftaught.training import train

GIB = 2**30
LEAST_SPEED = 0.65


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Train for some epochs; seconds of a step, peak memory, views at once."""
    cuda = options.device == "cuda"
    if cuda and options.child == "parts":
        whole = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(options.limit * GIB / whole)
    changes: dict[str, Any] = {"rows_at_once": options.rows} if options.child == "parts" else {"rows_at_once": 240}
    with TemporaryDirectory() as place:
        run = Path(place) / "run"
        train(
            options.photos,
            out=run,
            recipe="official",
            backbone=options.backbone,
            weights="none",
            freeze_batch_norm=True,
            batch_size=120,
            lr=1e-6,
            head_lr=1e-6,
            epochs=options.epochs,
            device=options.device,
            compile=cuda,
            quiet=True,
            **changes,
        )
        chosen = read_record(run).settings
        times = [json.loads(line)["step_seconds"] for line in (run / "timing.jsonl").read_text().splitlines()]
    peak = torch.cuda.max_memory_reserved() if cuda else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert chosen is not None
    return {"seconds": statistics.median(times[1:]), "gib": peak / GIB, "rows": chosen.rows_at_once}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--limit", type=float, help="GiB; 6 on a GPU, 3 on a CPU")
    parser.add_argument("--rows", type=int, help="views at once; on a CPU 12")
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--child", choices=["whole", "parts"])
    options = parser.parse_args()
    cuda = options.device == "cuda"
    options.backbone = options.backbone or ("resnet50" if cuda else "tf_efficientnet_lite0")
    options.limit = options.limit or (6 if cuda else 3)
    options.rows = options.rows or (None if cuda else 12)
    options.epochs = options.epochs or (4 if cuda else 2)
    if options.child:
        print(json.dumps(run(options)))
        return
    with TemporaryDirectory() as place:
        count = 960 if cuda else 120
        options.photos, _ = make_products(Path(place) / "photos", products=count // 4, photos=8)
        found = {child: measure(options, child) for child in ("whole", "parts")}
    for child, row in found.items():
        print(f"{child}: {row['rows']} views at once, {row['seconds']:.3f} s of steps an epoch, {row['gib']:.2f} GiB")
    speed = found["whole"]["seconds"] / found["parts"]["seconds"]
    print(f"parts run at {speed:.0%} of the speed of whole batches: {'PASS' if speed >= LEAST_SPEED else 'FAIL'}")
    fits = found["parts"]["gib"] <= options.limit
    print(f"parts within {options.limit:g} GiB: {'PASS' if fits else 'FAIL'}")


def measure(options: argparse.Namespace, child: str) -> dict[str, Any]:
    words = ["--child", child, "--photos", str(options.photos), "--backbone", options.backbone]
    words += ["--device", options.device, "--limit", str(options.limit), "--epochs", str(options.epochs)]
    words += ["--rows", str(options.rows)] if options.rows else []
    said = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
