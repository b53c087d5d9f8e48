"""selftaught export: a model as a file for other programs."""

import re
from pathlib import Path

from selftaught.cli.model_use import leave_out_folders, load_model, whiten
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import open_images
from selftaught.errors import UsageError, counted, printable
from selftaught.export import NOTES, check_format, export
from selftaught.files import check_output

OWN_ONNX, OWN_PROGRAM = b"\n\nselftaught\x12", re.escape(f"/{NOTES}".encode())
"""What the files of this command are recognized by: the names of their notes."""


def export_model(
    use: ModelUse, images: str | None, onnx: Path | None, program: Path | None, allow_skipped: bool
) -> None:
    paths = []
    for path, option, ending, own in ((onnx, "--onnx", ".onnx", OWN_ONNX), (program, "--torch", ".pt2", OWN_PROGRAM)):
        if path is not None:
            if path.suffix != ending:
                raise UsageError(f"{option} {printable(path)} must end in {ending}")
            check_format(path)
            check_output(path, own, option)
            paths.append(path)
    if not paths:
        raise UsageError("say what to write: --onnx model.onnx, --torch model.pt2, or both")
    found = None if images is None else leave_out_folders(open_images(images, "all", allow_skipped=allow_skipped))
    files = found.paths() if found is not None else []
    embedder = load_model(use)
    if use.whiten:
        if found is None:
            raise UsageError("--whiten needs images: selftaught export RUN IMAGES --whiten")
        embedder = whiten(embedder, found, allow_skipped)
    Reporter().say("tracing the network, and checking what is written against it: this takes a minute")
    for written in export(embedder, paths, files):
        used = counted(written.images, "given image" if files else "drawn image")
        print(
            f"{printable(written.path)}: uint8 images n×height×width×3 → vectors n×{embedder.dim}, compared by "
            f"{embedder.comparison}; largest difference from the model {written.difference:.1e} at a length of "
            f"{written.length:.3g}, on {used}"
        )
