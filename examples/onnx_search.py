"""Find the images most like one, with an exported model: only onnxruntime, numpy and Pillow are needed.

selftaught export RUN --onnx model.onnx
python examples/onnx_search.py model.onnx QUERY.jpg IMAGES [-k 5]
"""

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


def embed(session: onnxruntime.InferenceSession, path: Path) -> np.ndarray:
    """An image file as a vector; the model resizes, crops and normalizes."""
    with Image.open(path) as image:
        pixels = np.array(ImageOps.exif_transpose(image).convert("RGB"))  # uint8, height×width×3
    return session.run(["vectors"], {"images": pixels[None]})[0][0]  # or a batch of one size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("query", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("-k", type=int, default=5)
    options = parser.parse_args()

    session = onnxruntime.InferenceSession(options.model)
    about = session.get_modelmeta().custom_metadata_map
    print(f"{about['backbone']}: {about['dim']} dimensions, {about['metric']} distance, model {about['identity'][:12]}")
    paths = sorted(path for path in options.images.rglob("*") if path.suffix.lower() in ENDINGS)
    known = np.stack([embed(session, path) for path in paths])
    # Vectors of a cosine model have length 1, so that Euclidean distances rank them as cosines do.
    distances = np.linalg.norm(known - embed(session, options.query), axis=1)
    for index in np.argsort(distances)[: options.k]:
        print(f"{distances[index]:9.4f}  {paths[index]}")


if __name__ == "__main__":
    main()
