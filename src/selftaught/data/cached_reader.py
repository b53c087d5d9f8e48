"""Views from decoded images: read from files the first time, from the cache and the device's memory from then on."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from selftaught.data.augment import augment
from selftaught.data.crop_boxes import scale_boxes
from selftaught.data.decoded_cache import DecodedCache
from selftaught.data.decoded_images import DecodedImage, Decoder, split
from selftaught.data.device_crops import Packed, Resample, resample, resize_crops
from selftaught.data.device_images import DeviceImages, move_to_device
from selftaught.data.folder import ImageFolder
from selftaught.data.loader import Loader, prefetch
from selftaught.data.requests import Batch, Failures, ImageReader, View, ViewRequest
from selftaught.data.views import Views


class CachedReader(ImageReader):
    """A reader that decodes each file once.

    It stores images with a short side of at most ``side``, for random and squashed views, and finished center views.
    Views are cut on the device.
    """

    def __init__(self, views: Views, side: int, workers: int, device: torch.device, cache: DecodedCache) -> None:
        self.views, self.device, self.cache = views, device, cache
        self._compiled: Resample | None = None
        self._decoder = Decoder(views, side)
        self._loader = Loader(self._decoder.read, workers)
        self._known: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._resident: dict[str, DeviceImages] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._late = False

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        """Find the images that are stored already; if some are not, start the workers."""
        wanted: tuple[tuple[View, ImageFolder | None], ...] = (("random", images), ("center", labeled))
        missing = 0
        for view, folder in wanted:
            paths = folder.paths() if folder is not None else []
            kind = self._decoder.kind(view)
            self._known[kind] = self._stored_slots(kind, paths)
            missing += len(paths) - len(self._known[kind])
        self._late = not missing
        if missing:
            self._loader.start()

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        """The batches in order; cached ones are prepared before they are needed."""
        self._settle()
        rest = iter(batches)
        left: list[list[ViewRequest]] = []
        pieces = self._cached(rest, left)
        # On a CPU a thread gains nothing: training keeps all cores busy.
        threaded = self._stream is not None and not self._resident
        yield from map(self._finish, prefetch(pieces) if threaded else pieces)
        if left:
            try:
                yield from map(self._finish, self._decoded(chain(left, rest)))
            finally:
                self.cache.flush()

    def compile(self, images: int) -> None:
        """Compile the cutting of views, by cutting two different numbers of them."""
        self._compiled = torch.compile(resample, dynamic=True)
        for count in (2 * images, images + 1):
            side = self.views.size + count
            pixels = torch.zeros(side * side, 3, dtype=torch.uint8, device=self.device)
            packed = Packed(pixels, np.zeros(1, int), np.full((1, 2), side))
            boxes = np.tile([0, 0, side, side - 40], (count, 1))
            resize_crops(packed, np.zeros(count, int), boxes, boxes[:, 0] < 0, self.views.size, self._compiled)

    def uncompile(self) -> None:
        self._compiled = None

    @property
    def note(self) -> str | None:
        if (reason := self.cache.closed_because) is None:
            return None
        return f"not all decoded images are kept: {reason}; the others are read again in every epoch"

    def close(self) -> None:
        self._loader.close()
        self.cache.close()

    def _settle(self) -> None:
        """Find the stored images, and move them to the device if they fit there."""
        if self.cache.refresh():
            for kind, known in self._known.items():
                self._known[kind] = self._stored_slots(kind, list(known))
            self._resident.clear()
        if self._stream is None:
            return
        for kind, known in self._known.items():
            here = self._resident.get(kind)
            if known and (here is None or len(here.rows) != len(known)):
                self._resident.pop(kind, None)
                moved = move_to_device(self.cache, known, self.device)
                if moved is not None:
                    self._resident[kind] = moved

    def _cached(self, batches: Iterator[list[ViewRequest]], left: list[list[ViewRequest]]) -> Iterator["_Piece"]:
        """Batches whose images are all cached, up to the first other batch, which is put into ``left``."""
        for batch in batches:
            here = self._resident.get(self._decoder.kind(batch[0].view))
            if here is not None and all(request.path in here.rows for request in batch):
                rows = np.array([here.rows[request.path] for request in batch])
                yield _Piece(batch, here.packed, rows, here.originals[rows], list(range(len(batch))), [])
            elif (piece := self._load(batch)) is not None:
                yield self._send(piece)
            else:
                left.append(batch)
                return

    def _load(self, batch: list[ViewRequest]) -> "_Piece | None":
        """A batch from the cache; None if one of its images is missing or damaged."""
        slots = self._find(batch)
        if min(slots) < 0:
            return None
        sizes, originals = self.cache.sizes(slots)
        packed = Packed.empty(sizes, pin_memory=self._stream is not None)
        if not all(self.cache.read(slot, part) for slot, part in zip(slots, packed.parts(), strict=True)):
            return None
        return _Piece(batch, packed, np.arange(len(batch)), originals, list(range(len(batch))), [])

    def _decoded(self, batches: Iterator[list[ViewRequest]]) -> Iterator["_Piece"]:
        """Batches with images missing or damaged in the cache: workers decode them, and this process stores them."""
        waiting: deque[tuple[list[ViewRequest], list[int]]] = deque()

        def missing() -> Iterator[list[ViewRequest]]:
            for batch in batches:
                slots = [slot if slot >= 0 and self.cache.verify(slot) else -1 for slot in self._find(batch)]
                waiting.append((batch, slots))
                yield [request for request, slot in zip(batch, slots, strict=True) if slot < 0]

        # New processes may be started only before training.
        for collated in map(self._decoder.read, missing()) if self._late else self._loader.read(missing()):
            batch, slots = waiting.popleft()
            new = split(collated)
            images: list[DecodedImage] = []
            positions: list[int] = []
            failures: Failures = []
            for position, (request, slot) in enumerate(zip(batch, slots, strict=True)):
                stored = self.cache.load(slot) if slot >= 0 else None
                # One that was found, but has been damaged since, is decoded here.
                found = stored or (next(new) if slot < 0 else self._decoder(request))
                if isinstance(found, str):
                    failures.append((position, found))
                    continue
                if stored is None:
                    kind = self._decoder.kind(request.view)
                    self.cache.add(kind, request.path, found)
                    self._known[kind][request.path] = -1
                images.append(found)
                positions.append(position)
            sizes = np.array([image.pixels.shape[1::-1] for image in images], np.int64).reshape(-1, 2)
            packed = Packed.empty(sizes, pin_memory=self._stream is not None)
            for image, part in zip(images, packed.parts(), strict=True):
                part[:] = image.pixels.reshape(-1, 3)
            originals = np.array([image.original for image in images], np.int64).reshape(-1, 2)
            yield self._send(_Piece(batch, packed, np.arange(len(images)), originals, positions, failures))

    def _stored_slots(self, kind: str, paths: list[str]) -> dict[str, int]:
        """The places of the images that are stored, by their paths."""
        found = zip(paths, self.cache.find(kind, paths), strict=True)
        return {path: slot for path, slot in found if slot >= 0}

    def _find(self, batch: list[ViewRequest]) -> list[int]:
        """The place of each image in the cache; -1 if it is not stored."""
        kind = self._decoder.kind(batch[0].view)
        known = self._known[kind]
        new = list({request.path for request in batch if known.get(request.path, -1) < 0})
        known.update(self._stored_slots(kind, new))
        return [known.get(request.path, -1) for request in batch]

    def _send(self, piece: "_Piece") -> "_Piece":
        """The batch on its way to the device."""
        if self._stream is None:
            pixels, event = piece.packed.pixels.to(self.device), None
        else:
            with torch.cuda.stream(self._stream):
                pixels = piece.packed.pixels.to(self.device, non_blocking=True)
                event = self._stream.record_event()
        return piece._replace(packed=piece.packed._replace(pixels=pixels), event=event)

    def _finish(self, piece: "_Piece") -> Batch:
        """Cut the views of a batch."""
        if piece.event is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(piece.event)
            piece.packed.pixels.record_stream(current)
        view = piece.batch[0].view
        if not piece.positions:
            empty = torch.empty(0, 1, 3, 1, 1, dtype=torch.uint8, device=self.device)
            return Batch(empty, [], piece.failures)
        seeds = np.array([piece.batch[position].seed for position in piece.positions], np.uint64)
        boxes, flips, size = self.views.cuts(view, piece.originals, seeds)
        boxes = scale_boxes(boxes, piece.originals, piece.packed.sizes[piece.rows])
        count = boxes.shape[1]
        rows = np.repeat(piece.rows, count)
        compiled = self._compiled if view == "random" else None  # it is compiled for one size
        images = resize_crops(piece.packed, rows, boxes.reshape(-1, 4), flips.reshape(-1), size, compiled)
        batch = Batch(images.unflatten(0, (-1, count)), piece.positions, piece.failures)
        return augment(batch, piece.batch, self.views.color)


class _Piece(NamedTuple):
    """A batch with its pixels."""

    batch: list[ViewRequest]
    packed: Packed
    rows: np.ndarray
    """The position in ``packed`` of each image that could be read."""
    originals: np.ndarray
    """The images' sizes before they were made smaller, n×2."""
    positions: list[int]
    failures: Failures
    event: torch.cuda.Event | None = None
    """Reached when the pixels have arrived on the device."""
