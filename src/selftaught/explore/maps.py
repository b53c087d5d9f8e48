"""Maps of several versions, made while the page shows them."""

import threading
from collections.abc import Sequence

from torch import Tensor

from selftaught.report import EARLY, LATE, Map, neighbor_map, principal_map

PATIENCE = 5.0
"""Seconds that a step of a map may take at the end."""


class Maps:
    """A map of each version, which a thread improves step by step."""

    def __init__(self, vectors: Sequence[Tensor]) -> None:
        self._vectors = vectors
        self.maps: list[Map] = [principal_map(one) for one in vectors]
        self.steps = [0] * len(vectors)
        """The number of steps done for each map; EARLY + LATE means finished."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """End the work; returns whether it has ended within a few seconds."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        return not self._thread.is_alive()

    def _work(self) -> None:
        for number, vectors in enumerate(self._vectors):

            def show(step: int, places: Map, number: int = number) -> bool:
                self.maps[number], self.steps[number] = places, min(step, EARLY + LATE - 1)
                return self._stopped.is_set()

            # Maps of the same photos start alike, so that photos do not jump across the plane without a reason.
            first = self.maps[0] if number else self.maps[number]
            try:
                self.maps[number] = neighbor_map(vectors, first, show)
            finally:  # whatever stopped it, the map will not change any more
                self.steps[number] = EARLY + LATE
            if self._stopped.is_set():
                return
