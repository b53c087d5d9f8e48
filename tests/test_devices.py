from pathlib import Path

import pytest
import torch

from selftaught import devices
from selftaught.devices import choose_device, free_memory

CPU = torch.device("cpu")


def test_a_device_of_which_there_is_one_may_be_given_with_its_number() -> None:
    assert choose_device("cpu:0") == CPU, "training counts the processes on a CPU, and refuses a 0"


@pytest.mark.parametrize(("limit", "free"), [(None, 8000 * 1024), ("max", 8000 * 1024), ("5000000", 3500000)])
def test_free_memory_is_what_a_container_may_still_take_with_what_files_have_left_in_it(
    limit: str | None, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"proc/meminfo": "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable:    8000 kB\nSwapFree: 7 kB\n"}
    if limit is not None:
        group = "sys/fs/cgroup/memory"
        files |= {f"{group}.max": f"{limit}\n", f"{group}.current": "4900000\n"}
        files[f"{group}.stat"] = "anon 1500000\nfile 3400000\ninactive_anon 0\ninactive_file 3400000\nslab 5\n"
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(devices, "Path", lambda name: tmp_path / name.removeprefix("/"))
    assert free_memory(CPU) == free
