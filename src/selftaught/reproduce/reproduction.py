"""The reproduction of a table: the plan, the runs, the results."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from selftaught.console import Reporter, duration
from selftaught.devices import choose_device
from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import lock_output, plain_path
from selftaught.reproduce.cells import collect
from selftaught.reproduce.plan import Estimator, Job, incomplete_data, make_jobs
from selftaught.reproduce.quick import Quick, alike, quick_table
from selftaught.reproduce.request import Request, check_begun
from selftaught.reproduce.results import JSON, MARKDOWN
from selftaught.reproduce.runner import run_jobs
from selftaught.reproduce.table import Table
from selftaught.reproduce.tables import find_rows, find_table
from selftaught.reproduce.text import DATASETS, plain


def reproduce_table(
    name: str,
    rows: Sequence[str],
    data: Path,
    out: Path | None,
    seeds: int,
    epochs: int | None,
    backbone: str | None,
    device: str,
    quick: bool,
    plan: bool,
) -> None:
    """Print the plan of a table, and unless only that is wanted, run it and print its results."""
    table = find_table(name)
    named = [word for words in rows for word in words.split(",") if word]
    if rows and not named:
        raise UsageError("--rows names no row: leave it out for all of them")
    chosen = find_rows(table, named)
    if quick:
        kinds, table = set(map(alike, chosen)), quick_table(table)
        chosen = tuple(row for row in table.rows if alike(row) in kinds)
    place = out or Path("reproduced", f"{name}-quick" if quick else name)
    choose_device(device)
    request = Request(table, chosen, data, place, seeds, epochs, backbone, device, Quick() if quick else None)
    check_begun(request)
    jobs = make_jobs(request)
    reporter = Reporter()
    estimator = Estimator(jobs, device, reporter.say)
    print_plan(table, jobs, estimator, data)
    if plan:
        return
    if all(job.state.status == "cannot be run" for job in jobs):
        raise SelftaughtError("nothing can be run: the plan says what is missing")
    plain_path(place).parent.mkdir(parents=True, exist_ok=True)
    with lock_output(place):
        failed = run_jobs(request, jobs, estimator, reporter)
    cells = collect(request)
    for dataset in table.columns:
        print(f"\n{DATASETS[dataset]}\n{plain(table, cells, dataset)}")
    print(f"\nresults: {printable(place / MARKDOWN)} and {printable(place / JSON)}")
    if failed:
        raise SelftaughtError(f"{failed} of {len(jobs)} jobs failed: {printable(place / MARKDOWN)} says why")


def print_plan(table: Table, jobs: Sequence[Job], estimator: Estimator, data: Path) -> None:
    """Print what will be done, job by job."""
    seconds = {job.folder: estimator.seconds(job) for job in jobs if job.open}
    print(f"{table.title}\n{table.note}".rstrip())
    states = Counter(job.state.status for job in jobs)
    needs = list(dict.fromkeys(n for job in jobs if job.state.status == "cannot be run" for n in job.missing))
    for job in jobs:
        print(f"  {job.title}: {_describe(job, seconds.get(job.folder, 0.0), needs)}")
    for label, why in {row.label: row.why for row in table.rows if row.why}.items():
        print(f"  {label}: not run, as {why}")
    words = [
        f"{len(seconds)} to run in about {duration(sum(seconds.values()))}",
        f"{states['finished']} finished",
        f"{states['cannot be run']} cannot be run",
    ]
    print(f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}: {', '.join(words)}")
    for number, need in enumerate(needs, start=1):
        print(f"  [{number}] {need}")
    for sentence in incomplete_data(jobs, data):
        print(f"  {sentence}")


def _describe(job: Job, seconds: float, needs: Sequence[str]) -> str:
    """The state of a job in words."""
    state, about = job.state, f"about {duration(seconds)}"
    match state.status:
        case "finished":
            return "finished"
        case "cannot be run":
            return f"cannot be run, see {' '.join(f'[{needs.index(need) + 1}]' for need in job.missing)}"
        case "failed":
            again = f"delete {printable(job.folder)}* to try again" if state.final else f"to run again, {about}"
            return f"failed before ({state.error}); {again}"
    return f"{'to go on with' if state.status == 'begun' else 'to run'}, {about}"
