"""Maps of several versions, made while one looks at them."""

import threading
from collections.abc import Sequence

from torch import Tensor

from selftaught.report import EARLY, LATE, Map, neighbor_map, principal_map


class Maps:
    """A map of each version, better from moment to moment while a thread works on it."""

    def __init__(self, vectors: Sequence[Tensor]) -> None:
        self._vectors = vectors
        self.maps: list[Map] = [principal_map(one) for one in vectors]
        self.steps = [0] * len(vectors)
        """How far each map is; EARLY + LATE is finished."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float = 5.0) -> bool:
        """End the work; whether it has ended within so many seconds."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(patience)
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        for number, vectors in enumerate(self._vectors):

            def show(step: int, places: Map, number: int = number) -> bool:
                self.maps[number], self.steps[number] = places, min(step, EARLY + LATE - 1)
                return self._stopped.is_set()

            # Maps of the same photos begin alike, so that a photo is not thrown across the plane without a reason.
            first = self.maps[0] if number else self.maps[number]
            try:
                self.maps[number] = neighbor_map(vectors, first, show)
            finally:  # whatever stopped it, what is there is all there will be
                self.steps[number] = EARLY + LATE
            if self._stopped.is_set():
                return
