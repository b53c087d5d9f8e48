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

from selftaught.data.augment import augment
from selftaught.data.crop_boxes import scale_boxes
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
        self._center = f"center {views.use_size} of {views.resize}"
        self._short = f"short side {side}, long side at most {LONGEST} times that, drafts from {DRAFT} times that"
        self._loader = Loader(_Decoder(views, side), _collate, workers)
        self._known: dict[str, dict[str, int]] = {self._center: {}, self._short: {}}
        self._resident: dict[str, _Resident] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._late = False

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        """Find what is stored already; if that is not all, start the workers."""
        whole = True
        for kind, folder in ((self._short, images), (self._center, labeled)):
            paths = [folder.path(i) for i in range(len(folder))] if folder is not None else []
            found = dict(zip(paths, self.cache.find(kind, paths), strict=True))
            self._known[kind] = {path: slot for path, slot in found.items() if slot >= 0}
            whole = whole and len(self._known[kind]) == len(found)
        self._late = whole
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
                moved = _move(self.cache, known, self.device)
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
            piece = self._stored(batch, self._find(kind, batch))
            if piece is None:
                rest.left = chain([batch], rest.batches)
                return
            yield piece

    def _stored(self, batch: list[ViewRequest], slots: list[int]) -> "_Piece | None":
        """A batch from the cache; None if images are not in it, or damaged there."""
        if min(slots) < 0:
            return None
        sizes, originals = self.cache.sizes(slots)
        packed = self._space(sizes)
        read = [self.cache.read(slot, part) for slot, part in zip(slots, _parts(packed), strict=True)]
        for request, good in zip(batch, read, strict=True):
            if not good:
                self._known[self._kind(batch)].pop(request.path, None)
        if not all(read):
            return None
        return self._sent(batch, packed, originals, list(range(len(batch))), [])

    def _decoded(self, batches: Iterator[list[ViewRequest]]) -> Iterator["_Piece"]:
        """Batches with images that are not cached yet, or are damaged: these are decoded by the workers, and stored."""
        waiting: deque[tuple[list[ViewRequest], list[int]]] = deque()

        def missing() -> Iterator[list[ViewRequest]]:
            for batch in batches:
                found = self._find(self._kind(batch), batch)
                slots = [slot if slot >= 0 and self.cache.verify(slot) else -1 for slot in found]
                waiting.append((batch, slots))
                yield [request for request, slot in zip(batch, slots, strict=True) if slot < 0]

        # New processes may be started before training only.
        for collated in (self._loader.read_here if self._late else self._loader.read)(missing()):
            batch, slots = waiting.popleft()
            new = _split(collated)
            images: list[Found] = []
            positions: list[int] = []
            failures: list[tuple[int, str]] = []
            for position, (request, slot) in enumerate(zip(batch, slots, strict=True)):
                found = self.cache.load(slot) if slot >= 0 else next(new)
                if found is None:  # damaged since it was found
                    (found,) = _split(next(self._loader.read_here([[request]])))
                if isinstance(found, str):
                    failures.append((position, found))
                    continue
                if not isinstance(found, Found):
                    found = self._store(request, *found)
                images.append(found)
                positions.append(position)
            packed = self._space(np.array([image.pixels.shape[1::-1] for image in images], np.int64).reshape(-1, 2))
            for image, part in zip(images, _parts(packed), strict=True):
                part[:] = image.pixels.reshape(-1, 3)
            originals = np.array([image.original for image in images], np.int64).reshape(-1, 2)
            yield self._sent(batch, packed, originals, positions, failures)

    def _store(self, request: ViewRequest, image: Found, stamp: tuple[int, int]) -> Found:
        kind = self._kind([request])
        self.cache.add(kind, request.path, image.pixels, image.original, stamp)
        self._known[kind][request.path] = -1
        return image

    def _find(self, kind: str, batch: list[ViewRequest]) -> list[int]:
        known = self._known[kind]
        new = list({request.path for request in batch if known.get(request.path, -1) < 0})
        found = dict(zip(new, self.cache.find(kind, new), strict=True))
        known.update({path: slot for path, slot in found.items() if slot >= 0})
        return [known.get(request.path, -1) for request in batch]

    def _space(self, sizes: np.ndarray) -> Packed:
        """Memory for images of these sizes, on the host."""
        counts = sizes.prod(1)
        pixels = torch.empty(int(counts.sum()), 3, dtype=torch.uint8, pin_memory=self._stream is not None)
        return Packed(pixels, counts.cumsum() - counts, sizes)

    def _sent(
        self,
        batch: list[ViewRequest],
        packed: Packed,
        originals: np.ndarray,
        positions: list[int],
        failures: list[tuple[int, str]],
    ) -> "_Piece":
        """A batch on its way to the device."""
        event = None
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                packed = packed._replace(pixels=packed.pixels.to(self.device, non_blocking=True))
                event = self._stream.record_event()
        else:
            packed = packed._replace(pixels=packed.pixels.to(self.device))
        return _Piece(batch, packed, np.arange(len(positions)), originals, positions, failures, event)

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
        seeds = np.array([piece.batch[position].seed for position in piece.positions], np.uint64)
        boxes, flips, size = self.views.cuts(view, piece.originals, seeds)
        boxes = scale_boxes(boxes, piece.originals, piece.packed.sizes[piece.rows])
        count = boxes.shape[1]
        rows = np.repeat(piece.rows, count)
        images = self.crop_resizer(piece.packed, rows, boxes.reshape(-1, 4), flips.reshape(-1), size)
        batch = Batch(images.unflatten(0, (-1, count)), piece.positions, piece.failures)
        return augment(batch, piece.batch, self.views)

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


def _move(cache: DecodedCache, known: dict[str, int], device: torch.device) -> _Resident | None:
    """All known images onto the device, in blocks through pinned memory; None if they do not fit or one is damaged."""
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
        if not cache.read(known[path], flat[filled : filled + count]):
            del known[path]
            return None
        filled += count
    pixels[begin : begin + filled] = block[:filled]
    return _Resident(Packed(pixels, starts, sizes), originals, {path: row for row, path in enumerate(paths)})


def _parts(packed: Packed) -> Iterator[np.ndarray]:
    """The pixels of each image, pixels×3."""
    flat = packed.pixels.numpy()
    for start, count in zip(packed.starts.tolist(), packed.sizes.prod(1).tolist(), strict=True):
        yield flat[start : start + count]


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
    table: list[tuple[int, int, tuple[int, int], tuple[int, int]] | str]
    """Width, height, original size and stamp of each, or why there is none."""


def _collate(results: Sequence[_Stored | str]) -> _Collated:
    flat = [result[0].reshape(-1, 3) for result in results if not isinstance(result, str)]
    pixels = torch.from_numpy(np.concatenate(flat)) if flat else torch.empty(0, 3, dtype=torch.uint8)
    return _Collated(pixels, [r if isinstance(r, str) else (*r[0].shape[1::-1], *r[1:]) for r in results])


def _split(collated: _Collated) -> Iterator[tuple[Found, tuple[int, int]] | str]:
    """Each image and its stamp, or why there is none."""
    flat, start = collated.pixels.numpy(), 0
    for row in collated.table:
        if isinstance(row, str):
            yield row
            continue
        width, height, original, stamp = row
        count = width * height
        yield Found(flat[start : start + count].reshape(height, width, 3), original), stamp
        start += count
