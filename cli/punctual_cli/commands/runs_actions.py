"""The commands punctual runs cancel and retry."""

from typing import Annotated

import typer

from punctual_cli.commands.operations import act_on_many
from punctual_cli.errors import CommandError
from punctual_cli.input import text_fields
from punctual_cli.input.bulk_filters import BulkOptions, RunFilters, single_job
from punctual_cli.input.options import Key
from punctual_cli.input.references import (
    LATEST_RUN,
    JobName,
    OneOrManyJobs,
    RunName,
    find_run,
)
from punctual_cli.output import answers, run_views, watch
from punctual_cli.output.watch import Wait, WaitTimeout, max_wait_option
from punctual_cli.session import Session


def cancel(session: Session, job: JobName, run: RunName = LATEST_RUN) -> None:
    """Cancel a run."""
    cancelled_run = session.client.runs.cancel(find_run(session.client, job, run))
    answers.write_item(
        session,
        cancelled_run,
        lambda shown_run: session.screen.print_line(
            f"Run {shown_run.run_id}\n{run_views.state_line(session, shown_run)}"
            + ("" if shown_run.ended else ": cancel requested")
        ),
    )


def retry(
    session: Session,
    job: OneOrManyJobs = None,
    run: RunName = LATEST_RUN,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Payload of the new run, or @FILE. Default: the payload of the former run.",
            show_default=False,
        ),
    ] = None,
    wait: Wait = False,
    timeout: WaitTimeout = None,
    key: Key = None,
    *,
    filters: RunFilters,
    bulk: BulkOptions,
) -> None:
    """Retry a run as a new run, or all runs that match the filters.

    The new run uses the job's current definition, and the payload of the former run or another.
    """
    max_wait = max_wait_option(wait, timeout)
    payload_fields = text_fields.payload_option(payload)
    bulk_filter = filters.bulk_filter(session.clock())
    one_job = single_job(job, bulk_filter, bulk)
    if one_job is None:
        if wait:
            raise CommandError("--wait needs one job.")
        act_on_many(session, "retry", bulk_filter, bulk, idempotency_key=key, **payload_fields)
        return
    original_run = find_run(session.client, one_job, run)
    new_run = session.client.runs.retry(original_run, idempotency_key=key, **payload_fields)
    watch.show_started_run(session, new_run, wait, max_wait)
