"""The commands punctual runs cancel and retry."""

from punctual_cli.input.options import Key
from punctual_cli.input.references import LATEST, JobName, RunName, run_of
from punctual_cli.output import answers, run_views, watch
from punctual_cli.output.watch import Wait, WaitTimeout, patience
from punctual_cli.session import Session


def cancel(session: Session, job: JobName, run: RunName = LATEST) -> None:
    """Stop a run."""
    found = session.client.runs.cancel(run_of(session.client, job, run))
    answers.one(
        session,
        found,
        lambda one: session.screen.line(
            f"Run {one.run_id}\n{run_views.in_a_line(session, one)}"
            + ("" if one.ended else ": told to stop")
        ),
    )


def retry(
    session: Session,
    job: JobName,
    run: RunName = LATEST,
    wait: Wait = False,
    timeout: WaitTimeout = None,
    key: Key = None,
) -> None:
    """Do it once more, as a new run.

    By the job as it is now, with the payload that the run had.
    """
    until = patience(wait, timeout)
    before = run_of(session.client, job, run)
    found = session.client.runs.retry(before, idempotency_key=key)
    watch.answer(session, found, wait, until)
