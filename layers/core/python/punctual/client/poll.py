"""Poll a run until it ends, at growing intervals."""

from datetime import timedelta

from punctual.client.call_steps import ClientSettings, Pause, Steps, send_request
from punctual.client.errors import Unavailable, WaitTimeout
from punctual.client.model import decode_model
from punctual.client.run import Run
from punctual.client.wire import Repeat, Request, build_path

MIN_RUN_POLL_SECONDS, MAX_RUN_POLL_SECONDS, RUN_POLL_GROWTH = 0.05, 2.0, 1.5


def read_run(
    settings: ClientSettings, job_id: str, run_id: str, steady_deadline: float | None = None
) -> Steps[Run]:
    run_path = build_path("jobs", job_id, "runs", run_id)
    request = Request("GET", run_path, repeat=Repeat.READS)
    return decode_model(Run, (yield from send_request(settings, request, steady_deadline)))


def poll_until_ended(
    settings: ClientSettings, run: Run, timeout: float | timedelta | None
) -> Steps[Run]:
    """Return the run after its end. Raise WaitTimeout after `timeout` seconds."""
    max_wait_seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    steady_deadline = (
        None if max_wait_seconds is None else settings.steady_clock() + max_wait_seconds
    )
    delay_seconds = MIN_RUN_POLL_SECONDS
    while not run.ended:
        yield Pause(
            delay_seconds
            if steady_deadline is None
            else max(0.0, min(delay_seconds, steady_deadline - settings.steady_clock()))
        )
        try:
            run = yield from read_run(settings, run.job_id, run.run_id, steady_deadline)
        except Unavailable as error:
            if steady_deadline is not None and settings.steady_clock() >= steady_deadline:
                raise _wait_timeout(run, max_wait_seconds) from error
            raise
        if (
            steady_deadline is not None
            and settings.steady_clock() >= steady_deadline
            and not run.ended
        ):
            raise _wait_timeout(run, max_wait_seconds)
        delay_seconds = min(MAX_RUN_POLL_SECONDS, delay_seconds * RUN_POLL_GROWTH)
    return run


def _wait_timeout(run: Run, max_wait_seconds: float | None) -> WaitTimeout:
    text = (
        f"Run {run.run_id} of job {run.job_id} is {run.status} after {max_wait_seconds:g} s. "
        "It continues. Wait longer, or cancel it."
    )
    return WaitTimeout(text, run)
