"""Read the present jobs that files declare: by set, by exact name and by id, and no others."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from punctual_cli.apply.file import SET_TAG, DeclaredGroup, DeclaredJob
from punctual_cli.apply.plan import LIVE_JOB_STATUSES, is_declarable, set_name_of

if TYPE_CHECKING:
    from punctual.client import Job, Punctual

MAX_PARALLEL_READS = 8  # calls at a time
MAX_JOBS_OF_NAME = 200  # the newest jobs of a name that are read: one page


def read_present_jobs(client: "Punctual", groups: Sequence[DeclaredGroup]) -> "list[Job]":
    """Return the jobs that the declarations may mean, and the live jobs of their sets.

    The live jobs of a set come in a few pages. Only other names take a call each.
    """
    declared = [job for group in groups for job in group.jobs]
    set_names = dict.fromkeys(group.set_name for group in groups if group.set_name is not None)
    with ThreadPoolExecutor(MAX_PARALLEL_READS) as pool:
        read = partial(_read_all, pool)
        jobs = read(partial(_jobs_of_set, client), set_names)
        in_sets = {(set_name_of(job.raw), job.name) for job in jobs if is_declarable(job.raw)}
        jobs += read(partial(_jobs_of_name, client), _names_to_read(declared, in_sets))
        ids = dict.fromkeys(job.job_id for job in declared if job.job_id is not None)
        jobs += read(partial(_job_of_id, client), ids)
    return list({job.job_id: job for job in jobs}.values())


def _read_all(
    pool: ThreadPoolExecutor, read: "Callable[[str], Sequence[Job]]", keys: Iterable[str]
) -> "list[Job]":
    return [job for jobs in pool.map(read, keys) for job in jobs]


def _names_to_read(
    declared: Iterable[DeclaredJob], in_sets: set[tuple[str | None, str]]
) -> dict[str, None]:
    """Return the names without a live job in their set. Such a job may be new or without a set."""
    return dict.fromkeys(
        job.name
        for job in declared
        if job.job_id is None and (job.set_name is None or (job.set_name, job.name) not in in_sets)
    )


def _jobs_of_set(client: "Punctual", set_name: str) -> "Sequence[Job]":
    return list(client.jobs.list(tags={SET_TAG: set_name}, status=LIVE_JOB_STATUSES))


def _jobs_of_name(client: "Punctual", name: str) -> "Sequence[Job]":
    """Return the newest jobs of a name, and all live ones."""
    jobs = list(client.jobs.list(name=name, limit=MAX_JOBS_OF_NAME))
    if len(jobs) < MAX_JOBS_OF_NAME:
        return jobs
    return [*jobs, *client.jobs.list(name=name, status=LIVE_JOB_STATUSES, limit=MAX_JOBS_OF_NAME)]


def _job_of_id(client: "Punctual", job_id: str) -> "Sequence[Job]":
    from punctual.client import AmbiguousName, NotFound

    try:
        return [client.jobs.get(job_id)]
    except (AmbiguousName, NotFound):  # a text that is not an id counts as a name
        return []
