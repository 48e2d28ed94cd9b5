"""The words that options take are those of the domain and of the API."""

from collections.abc import Iterable

import pytest

from punctual.domain.job_state import JobStatus, MisfirePolicy, ScheduleKind
from punctual.domain.run import Reason, RunStatus, Trigger
from punctual.domain.tenants.roles import Role
from punctual.engine.ports.lists.job_index import JobHealth, JobSort
from punctual.engine.ports.lists.run_filters import TimeField
from punctual_cli.input import choices


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (choices.JobStatus, JobStatus),
        (choices.JobHealth, JobHealth),
        (choices.JobSort, JobSort),
        (choices.ScheduleType, ScheduleKind),
        (choices.RunStatus, RunStatus),
        (choices.Trigger, Trigger),
        (choices.RunReason, set(Reason) - {Reason.NONE}),
        (choices.RunTime, TimeField),
        (choices.Missed, MisfirePolicy),
        (choices.Role, [role.label for role in Role]),
    ],
)
def test_option_takes_the_words_of_the_domain(options: Iterable[str], words: Iterable[str]) -> None:
    assert {str(option) for option in options} == {str(word) for word in words}
