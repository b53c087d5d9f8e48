"""Training by several processes, as torchrun starts them."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from several import PATIENCE, run_launched, wait_until

from selftaught import train
from selftaught.devices import check_device
from selftaught.errors import SelftaughtError, UsageError
from selftaught.launched import Launched, launched
from selftaught.training import processes
from selftaught.training.processes import join_processes

OPTIONS: dict[str, Any] = {"backbone": "small", "dim": 8, "batch_size": 9, "neighbors": 3, "schedule": "constant"}
OPTIONS |= {"workers": 0, "compile": False, "precision": "32-true"}
SET = [word for name, value in OPTIONS.items() for word in ("--set", f"{name}={value}")]
pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


def torchrun(*arguments: object) -> "subprocess.Popen[str]":
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, "-m", "selftaught", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def metrics(run: Path) -> list[dict[str, float]]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def own_lines(error: str) -> list[str]:
    """What selftaught says of its end, among what torchrun says."""
    return re.findall(r"^selftaught: .*$", error, flags=re.MULTILINE)


def process_of(rank: int, launcher: int) -> int:
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    (found,) = [pid for pid in children if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text()]
    return int(found)


def assert_alike(ones: list[dict[str, float]], others: list[dict[str, float]]) -> None:
    """Equal but for a neighbor that sums in another order may exchange: thousandths of a loss, one image of a score."""
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            counts = "@" in name or name in ("r_precision", "view_agreement")
            assert other[name] == pytest.approx(value, rel=1e-2, abs=0.05 if counts else 1e-4), name


def test_two_processes_measure_what_one_measures(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "one", epochs=2, eval=photos, quiet=True, **OPTIONS)
    words = ["train", photos, "--out", tmp_path / "two", "--epochs", 2, *SET, "--eval", photos]
    codes, logs = run_launched(2, tmp_path / "logs", *words)
    assert codes == [0, 0], logs
    assert "".join(logs).count("epoch 2/2") == 1, "one process speaks"
    assert_alike(metrics(tmp_path / "one"), metrics(tmp_path / "two"))
    one, two = ({path.name for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert two == one | {"report.html"}, "the command makes a page"


def test_stopped_or_killed_in_one_process_all_end_and_any_number_of_processes_can_go_on(
    photos: Path, tmp_path: Path
) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    process = torchrun("train", photos, "--out", run, "--epochs", 5000, *SET)
    wait_until(lambda: bool(metrics(run)), lambda: process.poll() is None)
    os.kill(process_of(1, process.pid), signal.SIGTERM)
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode
    (line,) = own_lines(error)
    assert re.fullmatch(rf"selftaught: stopped in epoch \d+ .* and saved; go on with: .* --resume {run}", line)
    assert (run / "partial.pt").exists()

    epochs = len(metrics(run))
    shutil.copytree(run, copy)
    process = torchrun("train", "--resume", run)
    wait_until(lambda: len(metrics(run)) > epochs + 2, lambda: process.poll() is None)
    os.kill(process_of(1, process.pid), signal.SIGKILL)
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode
    gone = f"selftaught: another of the 2 processes ended; go on with: selftaught train --resume {run}"
    assert own_lines(error) == [gone]

    saved = json.loads((copy / "settings.json").read_text())
    saved["asked"]["epochs"] = epochs + 2
    (copy / "settings.json").write_text(json.dumps(saved))
    train(resume=copy, quiet=True)
    assert_alike(metrics(run)[: epochs + 2], metrics(copy))


def test_what_is_wrong_with_the_request_is_said_once_by_one_process(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    codes, logs = run_launched(2, tmp_path / "logs", "train", photos, "--out", tmp_path)
    assert codes == [2, 2]
    (line,) = [line for log in logs for line in own_lines(log)]
    assert "exists already and is not empty" in line


@pytest.fixture
def four_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun starts the third of four processes on the second of two machines."""
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in ({"RANK": 6, "LOCAL_RANK": 2, "WORLD_SIZE": 8, "LOCAL_WORLD_SIZE": 4} | place).items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.usefixtures("four_of_eight")
def test_processes_and_machines_are_those_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched() == Launched(processes=8, on_this_machine=4, machines=2, rank=6, local_rank=2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="start equally many on each"):
        launched()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert launched() is None
    monkeypatch.delenv("LOCAL_RANK")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert launched() is None, "a number of machines that a cluster tells each of them"


@pytest.mark.usefixtures("four_of_eight")
@pytest.mark.parametrize("variable", ["RANK=8", "LOCAL_RANK=-1", "LOCAL_WORLD_SIZE=0", "WORLD_SIZE=many", "RANK="])
def test_a_variable_of_the_launcher_that_is_no_such_number_is_named(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"^{name} must be a number from"):
        launched()


@pytest.mark.usefixtures("four_of_eight")
def test_devices_that_processes_cannot_share_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device(torch.device("cpu"))
    with pytest.raises(UsageError, match="--device cuda:1 is one device, but there are 8 processes: use --device cuda"):
        check_device(torch.device("cuda:1"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="4 processes are too many for 2 GPUs: start one for each"):
        check_device(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    check_device(torch.device("cuda"))


def test_processes_that_cannot_send_from_the_memory_of_cpus_are_refused_at_once(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "world", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: "cuda:nccl")
    with pytest.raises(UsageError, match=r"connected by cuda:nccl alone.*cpu:gloo,cuda:nccl"):
        train(photos, out=tmp_path / "run", quiet=True, **OPTIONS)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("four_of_eight")
def test_a_name_of_the_first_machine_that_stays_unknown_is_refused(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def find(name: object, _port: object) -> None:
        asked.append(name)
        raise OSError(-2, "Name or service not known")

    monkeypatch.setenv("MASTER_ADDR", "nowhere")
    monkeypatch.setattr(socket, "getaddrinfo", find)
    monkeypatch.setattr(processes, "NAME_WAIT", 0.0)
    monkeypatch.setattr(processes, "_ddp", lambda *_: pytest.fail("it would wait for hours"))
    with pytest.raises(UsageError, match=r"MASTER_ADDR is 'nowhere', which is not .*Name or service not known"):
        train(photos, out=tmp_path / "run", quiet=True, **OPTIONS)
    assert asked[0] == "nowhere"
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("four_of_eight")
@pytest.mark.parametrize("listens", [False, True])
def test_a_first_machine_that_does_not_answer_is_refused_soon(
    listens: bool, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ANSWER_WAIT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen(1)
        monkeypatch.setenv("MASTER_PORT", str(silent.getsockname()[1]))
        with pytest.raises(SelftaughtError, match=r"^the first of the 8 processes does not answer at MASTER_ADDR"):
            train(photos, out=tmp_path / "run", quiet=True, **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_process_that_does_not_answer_is_told_from_one_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"world": 2, "rank": 0, "connection_lost": True, "first_says": False}.items():
        monkeypatch.setattr(processes, name, lambda *_, value=value: value)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    silent = processes.ending(RuntimeError("gloo: Timed out waiting 7200000ms for recv"), "go on with: that")
    assert "another of the 2 processes did not answer for 2 h 0 min; go on with" in str(silent)
    ended = processes.ending(RuntimeError("gloo: Connection closed by peer"), "go on with: that")
    assert "another of the 2 processes ended; go on with" in str(ended)


@pytest.mark.usefixtures("four_of_eight")
def test_only_training_works_with_several_processes(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("evaluate", "run", "photos")[::2] == (2, ""), "not all of them say it"
    monkeypatch.setenv("RANK", "0")
    code, _, error = call("evaluate", "run", "photos")
    assert code == 2
    assert error == "selftaught: 8 processes were started, but only train and embed work with several\n"


@pytest.mark.usefixtures("four_of_eight")
@pytest.mark.parametrize(("option", "value"), [("precision", "16-mixed"), ("strategy", "fsdp")])
def test_what_fabric_run_cannot_decide_is_refused(monkeypatch: pytest.MonkeyPatch, option: str, value: str) -> None:
    monkeypatch.setenv(f"LT_{option.upper()}", value)
    with pytest.raises(UsageError, match=f"fabric run --{option} {value} is not for selftaught: use "):
        join_processes()
