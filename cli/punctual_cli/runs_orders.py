"""punctual runs: cancel, retry."""

from punctual_cli import answers, following, run_views
from punctual_cli.following import Wait, WaitTimeout, patience
from punctual_cli.options import Key
from punctual_cli.references import LATEST, JobName, RunName, run_of
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
    following.answer(session, found, wait, until)
