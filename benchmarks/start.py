"""Seconds from `selftaught train` to its first step: on a new machine, compiled before, and decoded before as well.

    python benchmarks/start.py --data PHOTOS [--backbone resnet50] [-- MORE WORDS FOR train]

Each start is a process of its own with the recipe `best` and its own folder of caches. A run of some thousand photos is
not compiled unless that is asked for (`-- --set compile=true`). What is measured is the end of the first epoch, less
the seconds that the second one takes: importing, listing, decoding, the untrained model, the first search for neighbors
and compiling are all in it. On a GPU at most 60 s, and 30 s once compiled.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

MOST_NEW, MOST_COMPILED = 60.0, 30.0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("more", nargs="*", help="further words for train")
    options = parser.parse_args(words)
    good = True
    with tempfile.TemporaryDirectory() as place:
        caches = {name: Path(place) / name for name in ("decoded", "compiled")}
        for label, kept, most in (
            ("new machine", (), MOST_NEW),
            ("compiled before", ("compiled",), MOST_COMPILED),
            ("compiled and decoded before", ("compiled", "decoded"), MOST_COMPILED),
        ):
            for name in caches.keys() - set(kept):
                shutil.rmtree(caches[name], ignore_errors=True)
            seconds = start(options, Path(place), caches)
            verdict = f" {'PASS' if seconds <= most else 'FAIL'} at most {most:.0f} s" * torch.cuda.is_available()
            print(f"{label}: {seconds:.1f} s to the first step{verdict}", flush=True)
            good &= seconds <= most or not torch.cuda.is_available()
    return 0 if good else 1


def start(options: argparse.Namespace, place: Path, caches: dict[str, Path]) -> float:
    """Seconds of one start; the run is stopped after its second epoch."""
    run = place / "run"
    shutil.rmtree(run, ignore_errors=True)
    words = ["train", str(options.data), "--out", str(run), "--backbone", options.backbone, "--epochs", "4"]
    places = {"SELFTAUGHT_CACHE": str(caches["decoded"]), "TORCHINDUCTOR_CACHE_DIR": str(caches["compiled"])}
    command = [sys.executable, "-m", "selftaught", *words, *options.more]
    with (place / "said").open("w") as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=os.environ | places, stdout=said, stderr=said)
        try:
            first = wait_for_epochs(run, 1, process)
            wait_for_epochs(run, 2, process)
        except RuntimeError:
            raise SystemExit((place / "said").read_text()) from None
        finally:
            process.kill()
            process.wait()
    lines = (run / "timing.jsonl").read_text().splitlines()
    return first - began - float(json.loads(lines[1])["seconds"])


def wait_for_epochs(run: Path, count: int, process: subprocess.Popen[bytes]) -> float:
    """When so many epochs were noted."""
    timing = run / "timing.jsonl"
    while not (timing.exists() and timing.read_text().count("\n") >= count):
        if process.poll() is not None:
            raise RuntimeError
        time.sleep(0.05)
    return time.perf_counter()


if __name__ == "__main__":
    raise SystemExit(main())
