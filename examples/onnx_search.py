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
    print(f"{about['backbone']}: {about['dim']} dimensions, metric {about['metric']}, model {about['identity'][:12]}")
    known = {}
    for path in sorted(path for path in options.images.rglob("*") if path.suffix.lower() in ENDINGS):
        try:
            known[path] = embed(session, path)
        except OSError as error:
            print(f"left out {path}: {error}")
    # Vectors of a cosine model have length 1, so that Euclidean distances rank them as cosines do.
    query = embed(session, options.query)
    distances = {path: np.linalg.norm(vector - query) for path, vector in known.items()}
    for path in sorted(distances, key=distances.get)[: options.k]:
        print(f"{distances[path]:9.4f}  {path}")


if __name__ == "__main__":
    main()
