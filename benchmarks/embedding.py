"""Images embedded in a second: by a network alone, from images in memory, and from files.

    python benchmarks/embedding.py [--model tf_efficientnet_lite0] [--device cuda] [--images 4096] [--quick]

- "network": its forward pass on images that are on the device already, as large and as many at once as in use.
- "images": ``Embedder.encode`` of decoded images in memory: center views, copies to the device and back included.
- "files": the same of JPEG files.

They take turns; a rate is the median over the turns. From decoded images, a GPU must reach 70% of the network.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from turns import take_turns

from selftaught import Embedder
from selftaught.data.embed_files import CPU_PIXELS
from selftaught.encoding import BATCH_SIZE

SHAPE = (300, 400, 3)
LEAST_SHARE = 0.7


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tf_efficientnet_lite0", help="a run, or a backbone's name")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few images, to see that it works")
    options = parser.parse_args(words)
    embedder = Embedder.load(options.model, options.device)
    cuda = embedder.encoding.device.type == "cuda"
    count = options.images or (64 if options.quick else 4096 if cuda else 256)
    side = embedder.preprocessing.use_size
    at_once = min(count, BATCH_SIZE if cuda else max(1, CPU_PIXELS // side**2))
    count -= count % at_once
    coarse = np.random.default_rng(0).integers(0, 256, (count, 15, 20, 3), dtype=np.uint8)
    images = [np.asarray(Image.fromarray(pixels).resize(SHAPE[1::-1])) for pixels in coarse]
    views = torch.zeros(at_once, 3, side, side, dtype=torch.uint8, device=embedder.encoding.device)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{i}.jpg") for i in range(count)]
        for path, pixels in zip(paths, images, strict=True):
            Image.fromarray(pixels).save(path)

        @torch.inference_mode()
        def forward() -> None:
            for _ in range(count // at_once):
                vectors = embedder.encoding.embed_views(views)
            vectors.cpu()

        seconds = take_turns(
            {"network": forward, "images": lambda: embedder.encode(images), "files": lambda: embedder.encode(paths)},
            1 if options.quick else options.turns,
        )
    rates = {name: count / taken for name, taken in seconds.items()}
    print(f"{options.model} at {side} pixels on {embedder.encoding.device}, {count} images of {SHAPE[1]}×{SHAPE[0]}")
    for name, rate in rates.items():
        print(f"{name:>8}: {rate:8,.0f} images a second, {rate / rates['network']:.0%} of the network")
    good = rates["images"] >= LEAST_SHARE * rates["network"]
    if cuda:
        print(f"{'PASS' if good else 'FAIL'} from decoded images at {LEAST_SHARE:.0%} of the network or better")
    return 0 if good or not cuda else 1


if __name__ == "__main__":
    raise SystemExit(main())
