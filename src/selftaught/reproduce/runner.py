"""Runs the jobs of a table one after the other; finished jobs stay, unfinished ones are resumed."""

import gc
from collections.abc import Sequence

import torch

from selftaught.console import Reporter, duration
from selftaught.errors import Collapse, Interrupted, SelftaughtError
from selftaught.reproduce.folders import drop_checkpoints, forget_failure, note_failure, read_state, run_seconds
from selftaught.reproduce.inputs import PHOTOS
from selftaught.reproduce.plan import Estimator, Job
from selftaught.reproduce.request import Request, begin
from selftaught.reproduce.results import write_results
from selftaught.training import train


def run_jobs(request: Request, jobs: Sequence[Job], estimator: Estimator, reporter: Reporter) -> int:
    """Run every job that is open, and write the results after each.

    A job that fails does not stop the others. A finished one keeps its model and loses its checkpoint.

    Returns:
        The number of jobs that failed.

    Raises:
        Interrupted: stopped by the user; the same command goes on.
    """
    begin(request)
    try:
        if request.quick is not None and any(job.open for job in jobs):
            with reporter.work("drawing photos", request.quick.products * request.quick.photos) as tell:
                request.quick.draw(request.out / PHOTOS, tell)
        for job in jobs:
            if job.state.status == "finished":  # a kill may have come before this
                drop_checkpoints(job.folder)
        failed = write_results(request, jobs)
        waiting = [job for job in jobs if job.open]
        for number, job in enumerate(waiting):
            seconds = [estimator.seconds(other) for other in waiting[number:]]
            reporter.say(
                f"[{number + 1}/{len(waiting)}] {job.title}: about {duration(seconds[0])}, "
                f"with all that follow about {duration(sum(seconds))}"
            )
            _attempt(job, request, reporter)
            failed = write_results(request, jobs)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(f"stopped; what is done is kept, go on with: {request.command}") from None
    return failed


def _attempt(job: Job, request: Request, reporter: Reporter) -> None:
    forget_failure(job.folder)
    status = read_state(job.folder).status
    arguments = (
        {"resume": job.folder} if status == "begun" else {"out": job.folder, "recipe": "official", **job.arguments}
    )
    try:
        if status != "finished":  # it may have failed only after it was finished
            train(device=request.device, quiet=request.quick is not None, **arguments)
        drop_checkpoints(job.folder)
        reporter.say(f"  finished in {duration(run_seconds(job.folder))}")
    except Interrupted:
        raise
    except Exception as error:  # whatever it is, the other jobs do not need this one
        sentence = _sentence(error)
        note_failure(job.folder, sentence, final=isinstance(error, Collapse))
        reporter.say(f"  failed: {sentence}")
    finally:
        gc.collect()  # the next run needs the memory that a failed run still holds
        torch.cuda.empty_cache()


def _sentence(error: Exception) -> str:
    if isinstance(error, SelftaughtError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "out of GPU memory"
    return " ".join(f"{type(error).__name__}: {error}".split())
