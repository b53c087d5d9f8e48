"""The devices, cores and memory of this machine."""

import os
from contextlib import suppress
from pathlib import Path

import torch

from selftaught.errors import UsageError, printable
from selftaught.launched import launched


def choose_device(device: str | torch.device) -> torch.device:
    """A device by name; "auto" takes a CUDA GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backends = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here = [name for name, available in backends.items() if available]
    try:
        chosen = torch.device(device)
        if chosen.type not in here or (chosen.type != "cuda" and chosen.index):
            raise RuntimeError
        torch.empty(0, device=chosen)
    except RuntimeError:
        raise UsageError(f"there is no device {printable(device)!r} here: use auto or {' or '.join(here)}") from None
    return chosen if chosen.type == "cuda" else torch.device(chosen.type)  # others have no numbers


def check_device(device: torch.device) -> None:
    """Raise an error unless all processes on this machine can work on this type of device."""
    found = launched()
    if found is None:
        return
    if device.index is not None:
        raise UsageError(
            f"--device {device} is one device, but there are {found.processes} processes: use --device {device.type}, "
            "and CUDA_VISIBLE_DEVICES to choose among GPUs"
        )
    if device.type == "cuda" and found.on_this_machine > torch.cuda.device_count():
        raise UsageError(
            f"{found.on_this_machine} processes are too many for {torch.cuda.device_count()} GPUs: start one for each, "
            "or use --device cpu"
        )
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"several processes cannot work on {device.type}: use --device cpu, or one process")


def exact_dtype(device: torch.device) -> torch.dtype:
    """The type of numbers for exact sums: float64, which Apple's GPUs do not have."""
    return torch.float32 if device.type == "mps" else torch.float64


def available_cores() -> int:
    """Cores this process may use, which in a container or under a scheduler can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be used on a device; None if that is not known."""
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        left, whole = torch.cuda.mem_get_info(number)
        allowed = torch.cuda.get_per_process_memory_fraction(number) * whole - torch.cuda.memory_reserved(number)
        return int(min(left, allowed))
    free = None
    with suppress(OSError, ValueError, IndexError):
        free = 1024 * int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0])
    with suppress(OSError, ValueError, IndexError):  # a container may be allowed less
        group = Path("/sys/fs/cgroup")
        of_files = int((group / "memory.stat").read_text().split("inactive_file")[1].split()[0])  # freed when needed
        left = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()) + of_files
        free = left if free is None else min(free, left)
    with suppress(OSError, ValueError, AttributeError):
        if free is None:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return free


def has_bfloat16() -> bool:
    """Whether this CPU has units that multiply matrices of bfloat16, which makes it faster than float32."""
    supported = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return supported is not None and bool(supported())
