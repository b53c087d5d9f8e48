"""Large blocks of memory are kept for the next use, not given back to the system."""

import ctypes
import sys
from contextlib import suppress

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
"""Parameters of glibc's mallopt."""


def reuse_memory() -> None:
    """Tell glibc's allocator to keep freed memory; other allocators are left as they are.

    By default it gets the memory of every large tensor from the system and gives it back after use. The system then
    clears the memory page by page each time, which takes as long as a CPU takes to compute with it.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(TOP_PAD, 2**26)
