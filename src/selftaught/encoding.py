"""Images → vectors: read in batches, seen in one or more views, embedded by a network."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby, islice, tee
from multiprocessing import current_process

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from selftaught.console import Interrupts, Tell
from selftaught.data import (
    Advance,
    Batch,
    Embedded,
    Failures,
    FileReader,
    ImageFolder,
    View,
    ViewRequest,
    Views,
    cut_views,
    embed_batches,
    from_array,
    in_batches,
    stack_embeddings,
    to_rgb,
    view_matrices,
)
from selftaught.devices import available_cores
from selftaught.errors import ImageError, Interrupted, SelftaughtError, UsageError, printable, raise_if_out_of_memory
from selftaught.networks import EmbeddingNetwork, Preprocessing
from selftaught.recipes import Settings

BATCH_SIZE = 64
FEW_IMAGES = 64
"""Fewer images than this are read without starting processes."""
COPIED_AT_ONCE, CUT_AT_ONCE = 16, 2**23
"""Images in memory that a thread copies to a GPU, and pixels of images whose views are cut there, at once."""
SCALES = {1: (1.0,), 2: (1.0, 1.25), 3: (0.8, 1.0, 1.25)}
"""The sizes at which an image is seen, as multiples of the size at use."""
OPENED = [threading.Lock() for _ in range(61)]
"""Locks of images that Pillow has opened: only one thread at a time may read the pixels of an image from its file."""

AddBatch = Callable[[list[int], Tensor, Failures], None]
ImageLike = str | os.PathLike[str] | Image.Image | np.ndarray


def views_at_use(inputs: Preprocessing) -> Views:
    """The views that a finished model gets of images."""
    return Views(inputs.size, inputs.use_resize, inputs.squash, use_size=inputs.use_size)


def views_in_training(inputs: Preprocessing, settings: Settings) -> Views:
    """The views that training makes of images."""
    scale, shape = settings.crop_scale, settings.crop_shape
    return replace(views_at_use(inputs), crop_scale=scale, crop_shape=shape, color=settings.color)


@dataclass(frozen=True)
class Encoding:
    """A network, and how it sees images: each vector is the mean over the views of an image."""

    network: EmbeddingNetwork
    preprocessing: Preprocessing
    dim: int
    mirror: bool
    scales: int

    @property
    def sides(self) -> list[int]:
        """The sizes in pixels at which the network sees an image, the largest last."""
        inputs = self.preprocessing
        return [inputs.fit(inputs.use_size * scale) for scale in SCALES[self.scales]]

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def views(self) -> Views:
        """The views of the largest size; those of the others are made from them."""
        return views_at_use(replace(self.preprocessing, use_size=self.sides[-1]))

    def check(self) -> None:
        """Raise an error if the network cannot see images at these sizes."""
        if self.preprocessing.fixed_size and self.scales > 1:
            raise UsageError(f"the network takes images of {self.preprocessing.size} pixels only, so it has one scale")
        try:
            side = self.sides[-1]
            list(self.embed([Batch(torch.zeros(1, 1, 3, side, side, dtype=torch.uint8), [0], [])]))
        except (RuntimeError, ValueError, AssertionError) as error:
            raise_if_out_of_memory(error)
            raise UsageError(f"the network cannot be used at {' and '.join(map(str, self.sides))} pixels") from None

    def encode(self, images: Iterable[ImageLike], batch_size: int) -> Iterator[Tensor]:
        """Batches of vectors; files in a row are read ahead, by processes if they are many."""
        for are_paths, group in groupby(images, lambda image: isinstance(image, (str, os.PathLike))):
            if not are_paths:
                yield from (batch.heads["f"] for batch in self.embed(self._see(group, batch_size)))
                continue
            first = list(islice(group, FEW_IMAGES))
            paths, names = tee(os.fspath(path) for path in chain(first, group))  # type: ignore[arg-type]
            with closing(self.encode_batches(paths, len(first), batch_size)) as batches:
                for batch in batches:
                    batch_names = list(islice(names, batch.files))
                    if batch.failures:
                        position, reason = batch.failures[0]
                        raise ImageError(f"cannot read {printable(batch_names[position])}: {reason}")
                    yield batch.heads["f"]

    def _see(self, images: Iterable[ImageLike], batch_size: int) -> Iterator[Batch]:
        """The views of images in memory, batch by batch; threads make those of the next while one is embedded.

        A GPU itself cuts the views of a batch of arrays of one shape, to the pixels that Pillow gives.
        """
        stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        size, resize, matrices = self.views.use_size, self.views.resize, lru_cache(maxsize=8)(view_matrices)

        def prepare(images: list[ImageLike], alike: bool) -> Tensor:
            if not alike:
                return torch.cat([self.views(_as_image(image), "center") for image in images])
            with torch.cuda.stream(stream):
                return torch.from_numpy(np.stack(images)).to(self.device)  # type: ignore[arg-type]

        def join(parts: list[Future[Tensor]]) -> Batch:
            pieces = [part.result() for part in parts]
            if pieces[0].device.type != "cpu":
                for piece in pieces:
                    piece.record_stream(torch.cuda.current_stream(self.device))
                pixels = torch.cat(pieces)
                some = pixels.split(max(1, CUT_AT_ONCE // pixels[0, :, :, 0].numel()))
                found = matrices(*pixels.shape[1:3], size, resize, self.device)
                pieces = [cut_views(piece, *found).byte() for piece in some]
            views = torch.cat(pieces)[:, None]
            return Batch(views, list(range(len(views))), [])

        with ThreadPoolExecutor(available_cores()) as threads:
            waiting: deque[list[Future[Tensor]]] = deque()
            for batch in in_batches(images, batch_size):
                alike = stream is not None and _are_alike(batch)
                parts = in_batches(batch, COPIED_AT_ONCE if alike else 1)
                waiting.append([threads.submit(prepare, part, alike) for part in parts])
                if len(waiting) > 1:
                    yield join(waiting.popleft())
            yield from map(join, waiting)

    def encode_files(
        self, paths: Sequence[str], advance: Advance = lambda _: None, view: View = "center"
    ) -> tuple[Tensor, Failures]:
        """The vectors of the files that can be read, in order, and (position, reason) for the others."""
        with closing(self.encode_batches(paths, len(paths), BATCH_SIZE, view)) as batches:
            heads, failures = stack_embeddings(batches, len(paths), advance)
        return heads.get("f", torch.empty(0, self.dim)), failures

    def encode_batches(
        self, paths: Iterable[str], count: int, batch_size: int, view: View = "center"
    ) -> Generator[Embedded]:
        """Embed files batch by batch, in order, as :meth:`embed` does.

        Args:
            paths: read as they are needed.
            count: how many there are, or about.
        """
        # New processes would inherit locks that other threads hold at that moment, and wait for them forever. A process
        # of a pool may start none.
        alone = threading.current_thread() is threading.main_thread() and not current_process().daemon
        reader = FileReader(self.views, min(16, available_cores()) if alone and count >= FEW_IMAGES else 0)
        # Squashed images are seen at their own size, as in training, not at that of centers.
        used = self.preprocessing.use_size if view == "center" else self.preprocessing.squash
        seeing = replace(self, preprocessing=replace(self.preprocessing, use_size=used))
        try:
            yield from seeing.embed(reader.read(in_batches((ViewRequest(path, view) for path in paths), batch_size)))
        finally:
            reader.close()

    def encode_rest(
        self, images: ImageFolder, rest: Sequence[int], tell: Tell, add: AddBatch, save: Callable[[], None]
    ) -> None:
        """Embed the images of a folder that are left; an interrupt keeps those that are done.

        Args:
            rest: their positions in the folder.
            add: called with the positions of a batch, the vectors of those that can be read, and which of the batch
                cannot be read, and why.
            save: called at the end and before an interrupt is raised, to keep all that was added.
        """
        left, nothing = deque(rest), torch.empty(0, self.dim)
        paths = (images.path(i) for i in rest)
        with Interrupts() as interrupts, closing(self.encode_batches(paths, len(rest), BATCH_SIZE)) as batches:
            for batch in batches:
                add([left.popleft() for _ in range(batch.files)], batch.heads.get("f", nothing), batch.failures)
                tell(batch.files)
                if interrupts.asked and left:
                    save()
                    done = f"{len(images) - len(left)} of {len(images)} images are done"
                    raise Interrupted(f"interrupted: {done}; the same command goes on from there")
            save()

    def embed(self, batches: Iterable[Batch]) -> Iterator[Embedded]:
        """Embed batches of views of the largest size; "f" is n×dim float32 on the CPU.

        A GPU has always one more batch to do while the vectors of one are waited for.
        """
        waiting: deque[tuple[Embedded, torch.cuda.Event | None]] = deque()
        encode = torch.inference_mode()(lambda images: {"f": self.embed_views(images)})
        for batch in embed_batches(encode, batches, self.device):
            waiting.append(_start_copy(batch))
            if len(waiting) > (self.device.type == "cuda"):
                yield _finish_copy(*waiting.popleft())
        for batch, event in waiting:
            yield _finish_copy(batch, event)

    def embed_views(self, images: Tensor) -> Tensor:
        """Center views n×3×H×W of the largest size, values from 0 to 255 → n×dim float32; can be traced."""
        views: list[Tensor] = []
        for side in self.sides:
            view = images
            if side != images.shape[-1]:
                view = F.interpolate(images.float(), (side, side), mode="bilinear", antialias=True, align_corners=False)
            views += [view, view.flip(-1)] if self.mirror else [view]
        parts: list[Tensor] = [self.network(view)["f"].float() for view in views]
        if len(parts) == 1:
            return parts[0]
        vectors = torch.stack(parts).mean(0)
        return F.normalize(vectors) if self.network.normalize else vectors


def _start_copy(batch: Embedded) -> tuple[Embedded, torch.cuda.Event | None]:
    """A batch with its vectors on the CPU, and the event after which they are there, if that is not now."""
    if not batch.heads or batch.heads["f"].device.type != "cuda":
        return batch._replace(heads={name: rows.cpu() for name, rows in batch.heads.items()}), None
    event, vectors = torch.cuda.Event(), batch.heads["f"]
    copied = batch._replace(heads={"f": vectors.to("cpu", non_blocking=True)})
    event.record(torch.cuda.current_stream(vectors.device))
    return copied, event


def _finish_copy(batch: Embedded, event: torch.cuda.Event | None) -> Embedded:
    if event is not None:
        event.synchronize()
    if batch.heads and not np.isfinite(batch.heads["f"].numpy()).all():  # torch would start threads, which takes longer
        raise SelftaughtError("the model gives infinite or undefined vectors: it is damaged, or its training failed")
    return batch


def _as_image(image: ImageLike) -> Image.Image:
    if not isinstance(image, Image.Image):
        return from_array(np.asarray(image))
    if 0 in image.size:
        raise ImageError(f"an image of {image.width}×{image.height} pixels cannot be embedded")
    try:
        with OPENED[id(image) % len(OPENED)]:
            image.load()
            return to_rgb(image)
    except Exception as error:  # decoders can raise anything on damaged files
        name = getattr(image, "filename", "") or "an image"
        raise ImageError(f"cannot read {printable(name)}: {str(error) or type(error).__name__}") from None


def _are_alike(images: list[ImageLike]) -> bool:
    """Whether these are 8-bit RGB arrays of one shape, and not so large that copying them to a GPU would take long."""
    first = images[0]
    if not isinstance(first, np.ndarray) or first.ndim != 3 or first.shape[2] != 3 or not 0 < first.size < CUT_AT_ONCE:
        return False
    return all(
        isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape == first.shape for image in images
    )
