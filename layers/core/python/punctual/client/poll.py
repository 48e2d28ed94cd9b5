"""Poll a run until it ends, at growing intervals."""

from datetime import timedelta

from punctual.client.call_steps import Core, Pause, Steps, ask
from punctual.client.errors import Unavailable, WaitTimeout
from punctual.client.model import one
from punctual.client.run import Run
from punctual.client.wire import Repeat, Request, path

SOON, LATER, SLOWER = 0.05, 2.0, 1.5


def read_run(core: Core, job_id: str, run_id: str, until: float | None = None) -> Steps[Run]:
    where = path("jobs", job_id, "runs", run_id)
    request = Request("GET", where, repeat=Repeat.READS)
    return one(Run, (yield from ask(core, request, until)))


def until_ended(core: Core, run: Run, timeout: float | timedelta | None) -> Steps[Run]:
    """Return the run after its end. Raise WaitTimeout after `timeout` seconds."""
    patience = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    until = None if patience is None else core.seconds() + patience
    delay = SOON
    while not run.ended:
        yield Pause(delay if until is None else max(0.0, min(delay, until - core.seconds())))
        try:
            run = yield from read_run(core, run.job_id, run.run_id, until)
        except Unavailable as error:
            if until is not None and core.seconds() >= until:
                raise _too_late(run, patience) from error
            raise
        if until is not None and core.seconds() >= until and not run.ended:
            raise _too_late(run, patience)
        delay = min(LATER, delay * SLOWER)
    return run


def _too_late(run: Run, patience: float | None) -> WaitTimeout:
    text = (
        f"Run {run.run_id} of job {run.job_id} is {run.status} after {patience:g} s. It goes on: "
        "wait longer, or cancel it."
    )
    return WaitTimeout(text, run)
