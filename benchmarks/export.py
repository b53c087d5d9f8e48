"""Time per image of an exported model beside PyTorch, from decoded pixels to vectors, on the CPU.

    python benchmarks/export.py [--model tf_efficientnet_lite0] [--threads 2] [--quick]

All sides get the same uint8 images and do the same: center crop, resize, normalize, network, pooling. They take turns
within one run; a time is the median over the turns. Before that, their vectors must agree.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from turns import take_turns

from selftaught import Embedder
from selftaught.export import export

SIZES = ((1, 480, 640), (8, 480, 640), (1, 1536, 2048))
"""Images at once, height, width."""
AGREED = 1e-3

Side = Callable[[np.ndarray], Any]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tf_efficientnet_lite0", help="a run, or a backbone's name")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="few turns and the smallest images, to see that it works")
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    embedder = Embedder.load(options.model, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        sides = make_sides(embedder, Path(folder), options.threads)
    print(f"{options.model}, {options.threads} threads: ms per image")
    print(f"{'images':>16} " + " ".join(f"{name:>14}" for name in sides))
    agree = True
    for size in SIZES[:1] if options.quick else SIZES:
        images = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
        vectors = [np.asarray(side(images)) for side in sides.values()]
        agree &= all(float(np.abs(v - vectors[0]).max()) < AGREED * float(np.abs(vectors[0]).max()) for v in vectors)
        asked = {name: partial(side, images) for name, side in sides.items()}
        seconds = take_turns(asked, 2 if options.quick else options.turns)
        row = [1000 * taken / len(images) for taken in seconds.values()]
        print(f"{'×'.join(map(str, size)):>16} " + " ".join(f"{ms:14.1f}" for ms in row))
    print("their vectors agree" if agree else "FAIL their vectors differ")
    return 0 if agree else 1


def make_sides(embedder: Embedder, folder: Path, threads: int) -> dict[str, Side]:
    """What is compared, by name; the first is the model itself."""
    export(embedder, [folder / "model.onnx", folder / "model.pt2"])
    limits = onnxruntime.SessionOptions()
    limits.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession((folder / "model.onnx").read_bytes(), limits)
    program: Any = torch.export.load(folder / "model.pt2").module()

    @torch.inference_mode()
    def run_program(images: np.ndarray) -> Any:
        return program(torch.from_numpy(images)).numpy()

    return {
        "PyTorch": lambda images: embedder.encode(list(images)).numpy(),
        "onnxruntime": lambda images: session.run(None, {"images": images})[0],
        "torch.export": run_program,
    }


if __name__ == "__main__":
    raise SystemExit(main())
