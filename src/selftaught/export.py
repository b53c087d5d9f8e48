"""A finished model as one file for other programs: ONNX, or a program of torch.export. Each is checked when written."""

import io
import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

import selftaught
from selftaught.data import center_view, draw_photos, open_image
from selftaught.embedder import Embedder
from selftaught.errors import ImageError, SelftaughtError, UsageError, one_line, printable
from selftaught.files import write_atomically

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
OPSET = 20
LARGEST_ONNX = 2**31
"""Bytes that one ONNX file can hold."""
NOTES = "selftaught.json"
LARGEST_CHECK = 16
"""The most images that the check uses."""
TOLERANCE = 1e-3
"""The largest difference between two vectors that rounding explains, relative to their length."""

Infer = Callable[[np.ndarray], np.ndarray]
"""uint8 n×H×W×3 → float32 n×dim, by the written file."""


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how far its vectors are from the model's."""

    path: Path
    images: int
    difference: float
    """The largest difference between two numbers."""
    length: float
    """The mean length of the vectors, to compare the difference with."""


class ImagesToVectors(nn.Module):
    """uint8 images n×H×W×3 of any one size → vectors n×dim."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.network, self.encoding = embedder.network, embedder.encoding
        views = self.encoding.views
        self.size, self.resize = views.use_size, views.resize

    def forward(self, images: Tensor) -> Tensor:
        return self.encoding.embed_views(center_view(images, self.size, self.resize))


def export(embedder: Embedder, paths: Sequence[Path], images: Sequence[str] = ()) -> list[Exported]:
    """Write a model to files that need neither this package nor its preprocessing: images in, vectors out.

    Args:
        paths: ``.onnx`` for onnxruntime and others, ``.pt2`` for ``torch.export.load``.
        images: files to check the result with; at most 16 are used. Without any, photos are drawn.

    Raises:
        SelftaughtError: if the network cannot be exported, or its export gives other vectors; no file is written.
    """
    for path in paths:
        check_format(path)
    photos = open_some(images) if images else draw_photos()
    model = Embedder(deepcopy(embedder.network).cpu(), embedder.description)
    notes = {"selftaught": selftaught.__version__, "metric": model.metric, "dim": str(model.dim)}
    notes |= {"identity": model.identity, "backbone": str(model.description["backbone"])}
    wanted = model.encode(photos).numpy()
    program = trace(model)
    written = []
    for path in paths:
        content, run = _write_onnx(program, notes) if path.suffix == ".onnx" else _write_torch(program, notes)
        found = np.concatenate([run(np.array(photo)[None]) for photo in photos])
        twice = run(np.stack([np.asarray(photos[0])] * 2))
        difference = max(float(np.abs(found - wanted).max()), float(np.abs(twice - wanted[:1]).max()))
        length = float(np.linalg.norm(wanted, axis=1).mean())
        if not difference <= TOLERANCE * length:
            raise SelftaughtError(
                f"the exported network gives other vectors: they differ by up to {difference:.2g} at a length of "
                f"{length:.2g}, so {printable(path)} was not written"
            )
        write_atomically(path, content)
        written.append(Exported(path, len(photos), difference, length))
    return written


def check_format(path: Path) -> None:
    """Raise an error if a file of this kind cannot be written here."""
    if path.suffix not in (".onnx", ".pt2"):
        raise UsageError(f"{printable(path)} must end in .onnx or .pt2")
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if path.suffix == ".onnx" and missing:
        raise UsageError(f"ONNX files need {' and '.join(missing)}: pip install 'selftaught[onnx]'")


def trace(embedder: Embedder) -> ExportedProgram:
    """The model as a graph, for any number of images of any size."""
    example = torch.zeros(2, 300, 400, 3, dtype=torch.uint8)
    dynamic = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC, 2: Dim.DYNAMIC},)
    try:
        with torch.no_grad():
            return torch.export.export(ImagesToVectors(embedder).eval(), (example,), dynamic_shapes=dynamic)
    except Exception as error:  # tracing a network can raise anything
        name = embedder.description["backbone"]
        raise SelftaughtError(f"the network {name} cannot be exported: {one_line(error)}") from error


def open_some(images: Sequence[str]) -> list[Image.Image]:
    """Some of these files, evenly spaced, without those that cannot be read."""
    photos = []
    for image in images[:: -(-len(images) // LARGEST_CHECK)]:
        with suppress(ImageError):
            photo = open_image(image)
            if min(photo.size) > 1:  # torch.export treats a side of 1 as a special case
                photos.append(photo)
    if not photos:
        raise ImageError(f"there is nothing to check with: {printable(images[0])} and others cannot be read")
    return photos


def _write_onnx(program: ExportedProgram, notes: dict[str, str]) -> tuple[bytes, Infer]:
    import onnx
    import onnxruntime

    if sum(tensor.nbytes for tensor in program.state_dict.values()) >= LARGEST_ONNX:
        raise UsageError("the network is larger than the 2 GB that one ONNX file can hold: use --torch")
    names = ({0: "n", 1: "height", 2: "width"},)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            converted = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=["images"],
                output_names=["vectors"],
                dynamic_shapes=names,
                verbose=False,
            )
    except Exception as error:
        raise SelftaughtError(f"the network cannot be written as ONNX: {one_line(error)}") from error
    assert converted is not None
    model = converted.model_proto
    onnx.helper.set_model_props(model, notes)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda images: session.run(None, {"images": images})[0]


def _write_torch(program: ExportedProgram, notes: dict[str, str]) -> tuple[bytes, Infer]:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, file, extra_files={NOTES: json.dumps(notes)})
        file.seek(0)
        module: Any = torch.export.load(file).module()
    return file.getvalue(), lambda images: module(torch.from_numpy(images)).detach().numpy()
