"""Views from decoded images: read from files the first time, from the cache and the device's memory from then on."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from selftaught.data.crop_boxes import random_boxes
from selftaught.data.decoded_cache import DecodedCache, Found
from selftaught.data.device_crops import CropResizer, Packed
from selftaught.data.folder import ImageFolder
from selftaught.data.images import identity, open_image
from selftaught.data.loader import Loader
from selftaught.data.prefetch import prefetch
from selftaught.data.requests import Batch, ViewRequest
from selftaught.data.views import Views
from selftaught.errors import ImageError

LONGEST = 4
"""An image's long side is stored at this many times the short side it would be stored with at most."""
DRAFT = 2
"""A JPEG may be read at a fraction of its size if that is at least this many times the size it is stored with."""
DEVICE_SHARE = 0.3
"""How much of the device's free memory decoded images may take."""


class CachedReader:
    """A reader that decodes each file once.

    Stored are images with a short side of at most ``side``, for random views and the squashed one, and the finished
    center views. Views are cut on the device.
    """

    def __init__(self, views: Views, side: int, workers: int, device: torch.device, cache: DecodedCache) -> None:
        self.views, self.side, self.device, self.cache = views, side, device, cache
        self.crop_resizer = CropResizer()
        self._center, self._short = f"center {views.use_size} of {views.resize}", f"short side {side}"
        self._loader = Loader(_Decoder(views, side), _collate, workers)
        self._known: dict[str, dict[str, int]] = {self._center: {}, self._short: {}}
        self._resident: dict[str, _Resident] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        """Find what is stored already; if that is not all, start the workers."""
        whole = True
        for kind, folder in ((self._short, images), (self._center, labeled)):
            paths = [folder.path(i) for i in range(len(folder))] if folder is not None else []
            found = dict(zip(paths, self.cache.find(kind, paths), strict=True))
            self._known[kind] = {path: slot for path, slot in found.items() if slot >= 0}
            whole = whole and len(self._known[kind]) == len(found)
        if not whole:
            self._loader.start()

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        """The batches in order; those of one pass, as far as they are cached, are prepared ahead of their use."""
        self._settle()
        rest = _Rest(iter(batches))
        pieces = self._cached(rest)
        # On a CPU there is nothing to gain from a thread: training keeps all of its cores busy.
        threaded = self._stream is not None and not self._resident
        yield from map(self._finish, prefetch(pieces) if threaded else pieces)
        if rest.left is not None:
            try:
                yield from map(self._finish, self._decoded(rest.left))
            finally:
                self.cache.flush()

    def close(self) -> None:
        self._loader.close()
        self.cache.close()

    def _settle(self) -> None:
        """Find what was stored, and bring it onto the device if it fits there."""
        if self.cache.refresh():
            for kind, known in self._known.items():
                paths = list(known)
                found = zip(paths, self.cache.find(kind, paths), strict=True)
                self._known[kind] = {path: slot for path, slot in found if slot >= 0}
            self._resident.clear()
        if self._stream is None:
            return
        for kind, known in self._known.items():
            here = self._resident.get(kind)
            if known and (here is None or len(here.rows) != len(known)):
                self._resident.pop(kind, None)
                moved = _bring(self.cache, known, self.device)
                if moved is not None:
                    self._resident[kind] = moved

    def _cached(self, rest: "_Rest") -> Iterator["_Piece"]:
        """Batches whose images are all cached; the first that is not, and all after it, are left in ``rest``."""
        for batch in rest.batches:
            kind = self._kind(batch)
            here = self._resident.get(kind)
            if here is not None and all(request.path in here.rows for request in batch):
                rows = np.array([here.rows[request.path] for request in batch])
                yield _Piece(batch, here.packed, rows, here.originals[rows], list(range(len(batch))), [], None)
                continue
            slots = self._find(kind, batch)
            if min(slots) < 0:
                rest.left = chain([batch], rest.batches)
                return
            yield self._packed(batch, [self.cache.image(slot) for slot in slots], list(range(len(batch))), [])

    def _decoded(self, batches: Iterator[list[ViewRequest]]) -> Iterator["_Piece"]:
        """Batches with images that are not cached yet: these are decoded by the workers, and stored."""
        waiting: deque[tuple[list[ViewRequest], list[int]]] = deque()

        def missing() -> Iterator[list[ViewRequest]]:
            for batch in batches:
                slots = self._find(self._kind(batch), batch)
                waiting.append((batch, slots))
                yield [request for request, slot in zip(batch, slots, strict=True) if slot < 0]

        for stored, failures in self._loader.read(missing()):
            batch, slots = waiting.popleft()
            kind, new = self._kind(batch), iter(_split(stored))
            failed = dict(failures)
            absent = [position for position, slot in enumerate(slots) if slot < 0]
            reasons = {position: failed[number] for number, position in enumerate(absent) if number in failed}
            images: list[Found] = []
            positions = [position for position in range(len(batch)) if position not in reasons]
            for position in positions:
                if slots[position] >= 0:
                    images.append(self.cache.image(slots[position]))
                    continue
                image, stamp = next(new)
                path = batch[position].path
                self.cache.add(kind, path, image.pixels, image.original, stamp)
                self._known[kind][path] = -1
                images.append(image)
            yield self._packed(batch, images, positions, list(reasons.items()))

    def _find(self, kind: str, batch: list[ViewRequest]) -> list[int]:
        known = self._known[kind]
        new = list({request.path for request in batch if known.get(request.path, -1) < 0})
        found = dict(zip(new, self.cache.find(kind, new), strict=True))
        known.update({path: slot for path, slot in found.items() if slot >= 0})
        return [known.get(request.path, -1) for request in batch]

    def _packed(
        self, batch: list[ViewRequest], images: list[Found], positions: list[int], failures: list[tuple[int, str]]
    ) -> "_Piece":
        sizes = np.array([image.pixels.shape[1::-1] for image in images], np.int64).reshape(-1, 2)
        counts = sizes.prod(1)
        pixels = torch.empty(int(counts.sum()), 3, dtype=torch.uint8, pin_memory=self._stream is not None)
        starts = counts.cumsum() - counts
        flat = pixels.numpy()
        for image, start, count in zip(images, starts.tolist(), counts.tolist(), strict=True):
            flat[start : start + count] = image.pixels.reshape(-1, 3)
        originals = np.array([image.original for image in images], np.int64).reshape(-1, 2)
        event = None
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                pixels = pixels.to(self.device, non_blocking=True)
                event = self._stream.record_event()
        elif self.device.type != "cpu":
            pixels = pixels.to(self.device)
        return _Piece(
            batch, Packed(pixels, starts, sizes), np.arange(len(images)), originals, positions, failures, event
        )

    def _finish(self, piece: "_Piece") -> Batch:
        """Cut the views of a batch."""
        if piece.event is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(piece.event)
            piece.packed.pixels.record_stream(current)
        view = piece.batch[0].view
        assert view != "check"
        if not piece.positions:
            empty = torch.empty(0, 1, 3, 1, 1, dtype=torch.uint8, device=self.device)
            return Batch(empty, [], piece.failures)
        if view == "random":
            seeds = np.array([piece.batch[position].seed for position in piece.positions], np.uint64)
            boxes, flips = random_boxes(piece.originals, seeds, self.views.crop_scale)
            boxes = _scaled(boxes, piece.originals, piece.packed.sizes[piece.rows])
            count, size = boxes.shape[1], self.views.size
        else:
            whole = piece.packed.sizes[piece.rows]
            boxes = np.concatenate([np.zeros_like(whole), whole], 1)[:, None]
            flips = np.zeros((len(whole), 1), bool)
            count, size = 1, self.views.use_size if view == "center" else self.views.squash
        rows = np.repeat(piece.rows, count)
        images = self.crop_resizer(piece.packed, rows, boxes.reshape(-1, 4), flips.reshape(-1), size)
        return Batch(images.unflatten(0, (-1, count)), piece.positions, piece.failures)

    def _kind(self, batch: list[ViewRequest]) -> str:
        return self._center if batch[0].view == "center" else self._short


class _Piece(NamedTuple):
    """A batch whose pixels are at hand."""

    batch: list[ViewRequest]
    packed: Packed
    rows: np.ndarray
    """Where in ``packed`` each image that could be read is."""
    originals: np.ndarray
    """The images' sizes before they were made smaller, n×2."""
    positions: list[int]
    failures: list[tuple[int, str]]
    event: torch.cuda.Event | None
    """When the pixels have arrived on the device."""


class _Rest:
    def __init__(self, batches: Iterator[list[ViewRequest]]) -> None:
        self.batches = batches
        self.left: Iterator[list[ViewRequest]] | None = None


class _Resident(NamedTuple):
    """Images in the device's memory."""

    packed: Packed
    originals: np.ndarray
    rows: dict[str, int]


def _bring(cache: DecodedCache, known: dict[str, int], device: torch.device) -> _Resident | None:
    """All known images onto the device, in blocks through pinned memory; None if they do not fit."""
    paths = [path for path, slot in known.items() if slot >= 0]
    if len(paths) < len(known):
        return None
    sizes, originals = cache.sizes([known[path] for path in paths])
    counts = sizes.prod(1)
    total = int(counts.sum())
    if 3 * total > DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
        return None
    pixels = torch.empty(total, 3, dtype=torch.uint8, device=device)
    starts = counts.cumsum() - counts
    block = torch.empty(max(2**25, int(counts.max())), 3, dtype=torch.uint8, pin_memory=True)
    flat, filled, begin = block.numpy(), 0, 0
    for path, count in zip(paths, counts.tolist(), strict=True):
        if filled + count > len(block):
            pixels[begin : begin + filled] = block[:filled]
            begin, filled = begin + filled, 0
        flat[filled : filled + count] = cache.image(known[path]).pixels.reshape(-1, 3)
        filled += count
    pixels[begin : begin + filled] = block[:filled]
    return _Resident(Packed(pixels, starts, sizes), originals, {path: row for row, path in enumerate(paths)})


def _scaled(boxes: np.ndarray, originals: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Boxes in the original images as boxes in the stored ones, at least one pixel wide and high."""
    scale = np.tile(sizes / originals, 2)[:, None]
    scaled = np.rint(boxes * scale).astype(np.int64)
    first = np.minimum(scaled[:, :, :2], sizes[:, None] - 1)
    return np.concatenate([first, np.maximum(scaled[:, :, 2:], first + 1)], 2)


def shrink(image: Image.Image, side: int) -> Image.Image:
    """The image with a short side of at most ``side``; never enlarged, and a long strip is squeezed.

    Example:
        >>> shrink(Image.new("RGB", (400, 200)), 100).size, shrink(Image.new("RGB", (50, 9000)), 100).size
        ((200, 100), (50, 400))
    """
    scale = min(1.0, side / min(image.size))
    width, height = (min(max(1, round(length * scale)), LONGEST * side) for length in image.size)
    if (width, height) == image.size:
        return image
    return image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)


_Stored = tuple[np.ndarray, tuple[int, int], tuple[int, int]]


class _Decoder(Dataset[_Stored | str]):
    def __init__(self, views: Views, side: int) -> None:
        self.views, self.side = views, side

    def __getitem__(self, request: ViewRequest) -> _Stored | str:
        try:
            stamp = identity(request.path)
            image = open_image(request.path, None if request.view == "center" else DRAFT * self.side)
        except ImageError as error:
            return str(error)
        if request.view == "center":
            pixels = self.views(image, "center")[0].permute(1, 2, 0).numpy()
            return pixels, (self.views.use_size, self.views.use_size), stamp
        return np.asarray(shrink(image, self.side)), image.size, stamp


class _Collated(NamedTuple):
    """Decoded images side by side: one tensor is one transfer between processes."""

    pixels: Tensor
    table: list[tuple[int, int, tuple[int, int], tuple[int, int]]]
    """Width, height, original size and stamp of each."""


def _collate(results: Sequence[_Stored | str]) -> tuple[_Collated, list[tuple[int, str]]]:
    good = [result for result in results if not isinstance(result, str)]
    flat = [pixels.reshape(-1, 3) for pixels, _, _ in good]
    pixels = torch.from_numpy(np.concatenate(flat)) if flat else torch.empty(0, 3, dtype=torch.uint8)
    table = [(pixels.shape[1], pixels.shape[0], original, stamp) for pixels, original, stamp in good]
    failures = [(number, result) for number, result in enumerate(results) if isinstance(result, str)]
    return _Collated(pixels, table), failures


def _split(collated: _Collated) -> Iterator[tuple[Found, tuple[int, int]]]:
    flat, start = collated.pixels.numpy(), 0
    for width, height, original, stamp in collated.table:
        count = width * height
        yield Found(flat[start : start + count].reshape(height, width, 3), original), stamp
        start += count
