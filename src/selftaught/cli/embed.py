"""selftaught embed: vectors of a collection as a file; only new images are embedded."""

import re
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from selftaught.cli.model_use import load_model, load_whitened, report_skipped
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import Failures, ImageFolder, Skipped, open_images, skipped_table, stamp
from selftaught.devices import check_device, choose_device
from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, UsageError, counted, printable
from selftaught.files import lock_output, plain_path, write_atomically
from selftaught.launched import launched
from selftaught.model_files import DESCRIPTION, write_model
from selftaught.vector_log import Known, LoggedBatch, VectorLog
from selftaught.vectors import (
    Vectors,
    check_model,
    check_target,
    part_of,
    partial_file,
    read_vectors,
    skipped_file,
    whitened_model,
    write_vectors,
)


def embed(use: ModelUse, source: str, out: Path, shard: str | None, allow_skipped: bool) -> None:
    number, count = _parse_shard(shard) if shard is not None else _take_part(use.device)
    target = part_of(out, number, count) if count > 1 else out
    check_target(target)
    reporter = Reporter(quiet=shard is None and number > 1)
    if use.whiten and count > 1:
        raise UsageError("a model is whitened on all images, so --whiten cannot go with parts of them")
    if count > 1 and out.exists():
        raise UsageError(f"{printable(out)} is there already, and would be read instead of its parts: move it away")
    images = open_images(source, "all", allow_skipped=allow_skipped)
    with lock_output(target):
        root = plain_path(images.root)
        old = _previous(target, root, reporter)
        embedder = _whitened(use, images, out, reporter, is_new=old is None) if use.whiten else load_model(use)
        known = dict[str, Known]()
        if old is not None:
            check_model(target, old, embedder, "another --out, or delete the file")
            before = zip(old.paths, old.stamps, old.vectors.numpy(), strict=False)
            known = {path: Known(stamp, row) for path, stamp, row in before}
        images = _part(images, number, count)
        stamps = list(map(stamp, images.paths()))
        with closing(VectorLog(partial_file(target), model=embedder.identity, root=str(root), dim=embedder.dim)) as log:
            for done in log.batches:
                known |= done.known()
            todo = [i for i, file in enumerate(images.files) if file not in known or known[file].stamp != stamps[i]]
            if known:
                reporter.say(f"{len(images) - len(todo)} of {len(images)} images are done, {len(todo)} to do")

            def add(batch: list[int], vectors: Tensor, failures: Failures) -> None:
                made = LoggedBatch([(images.files[i], stamps[i]) for i in batch], vectors.numpy(), failures)
                log.add(made)
                known.update(made.known())

            with reporter.work("embedding images", len(images), len(images) - len(todo)) as tell:
                embedder.encoding.encode_rest(images, todo, tell, add, log.save)
            skipped = [Skipped(file, known[file].reason) for file in images.files if known[file].vector is None]
            report_skipped(images, skipped, allow_skipped, reporter)
            found = {i: row for i, file in enumerate(images.files) if (row := known[file].vector) is not None}
            files = tuple(images.files[i] for i in found)
            rows = torch.from_numpy(np.stack(list(found.values())))
            content = Vectors(root, files, rows, embedder.identity, embedder.metric, tuple(stamps[i] for i in found))
            written, table = write_vectors(target, content), skipped_file(target)
            if skipped:
                write_atomically(table, skipped_table(skipped))
                written.append(table)
            else:
                table.unlink(missing_ok=True)
            log.remove()
    print(f"{counted(len(files), 'vector')} of size {embedder.dim} written to {', '.join(map(printable, written))}")


def _previous(out: Path, root: Path, reporter: Reporter) -> Vectors | None:
    """The vectors of this folder in an earlier file; those of another folder are refused, not replaced."""
    if not out.exists():
        return None
    try:
        old = read_vectors(out)
    except SelftaughtError as error:
        reporter.say(f"all images are embedded anew: {error}")
        return None
    if old.root != root:
        raise UsageError(
            f"{printable(out)} holds vectors of the folder {printable(old.root)}, not of {printable(root)}: "
            "give another --out, or delete the file"
        )
    return old


def _whitened(use: ModelUse, images: ImageFolder, out: Path, reporter: Reporter, *, is_new: bool) -> Embedder:
    """The model whitened on these images, kept beside the vectors: later images and queries need the same model."""
    place = whitened_model(out)
    if place.exists() and not place.is_dir():
        raise UsageError(f"the whitened model is kept in {printable(place)}, but that is a file: choose another --out")
    if not is_new and not (place / DESCRIPTION).is_file():
        raise UsageError(
            f"{printable(out)} was made without --whiten, or its model {printable(place)} is gone: "
            "give another --out, or delete the file"
        )
    whitened = load_whitened(use, images, place)
    if not (place / DESCRIPTION).is_file():
        write_model(place, whitened.network, whitened.description)
        reporter.say(f"whitened model: {printable(place)}; search these vectors with it")
    return whitened


def _take_part(device: str) -> tuple[int, int]:
    """(part, number of parts) for this process among those of a launcher; also selects its GPU."""
    found = launched()
    if found is None:
        return 1, 1
    check_device(choose_device(device))
    if torch.cuda.is_available() and found.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(found.local_rank)
    return found.rank + 1, found.processes


def _parse_shard(shard: str) -> tuple[int, int]:
    """(part, number of parts) from the text of the option.

    >>> _parse_shard("2/8")
    (2, 8)
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f"--shard must be a part and their number, such as 2/8, but is {printable(shard)}")
    return number, count


def _part(images: ImageFolder, number: int, count: int) -> ImageFolder:
    """The images of one part. An image's name alone decides its part, so added images do not move others."""
    if count == 1:
        return images
    own = [f for f in images.files if zlib.crc32(f.encode("utf-8", "surrogateescape")) % count == number - 1]
    if not own:
        raise UsageError(f"part {number} of {count} has no images: take fewer parts")
    return images.only(own)
