"""Adds the names of jobs to listed runs."""

from collections.abc import Mapping, Sequence

from punctual.domain.errors import Unreadable
from punctual.domain.job_state import JobState
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.rows import JobKey, JobLabel
from punctual.engine.queries.run_views import label_of
from punctual.engine.queries.views import RunView


class JobLabels:
    """Reads the labels of the jobs of one page. A job that cannot be read has no label."""

    def __init__(self, job_states: JobStates) -> None:
        self._job_states = job_states

    def add_to(self, views: Sequence[RunView]) -> list[RunView]:
        """Return the views, each with the label of its job."""
        keys = {JobKey(view.tenant, view.job_id) for view in views if view.label is None}
        labels = self.load(sorted(keys)) if keys else {}
        return [
            view
            if view.label is not None
            else view._replace(label=labels.get(JobKey(view.tenant, view.job_id)))
            for view in views
        ]

    def of_state(self, state: JobState) -> JobLabel | None:
        """Return the label of a job that is read already."""
        key, ref = JobKey(state.tenant, state.job_id), state.current_rules.definition_ref
        definition = self._job_states.load_definitions([(key, ref)]).get((key, ref))
        return None if definition is None else label_of(definition)

    def load(self, keys: Sequence[JobKey]) -> Mapping[JobKey, JobLabel]:
        """Return the label of each job by its definition in force."""
        refs = [
            (key, stored.state.current_rules.definition_ref)
            for key, stored in load_readable_states(self._job_states, keys).items()
            if not stored.state.is_blank
        ]
        definitions = self._job_states.load_definitions(refs)
        return {key: label_of(definition) for (key, _), definition in definitions.items()}


def load_readable_states(
    job_states: JobStates, keys: Sequence[JobKey]
) -> Mapping[JobKey, StoredState]:
    """Return the states that can be read. A damaged one hides nothing of another job."""
    try:
        return job_states.load(keys)
    except Unreadable:
        states: dict[JobKey, StoredState] = {}
        for key in keys:
            try:
                states.update(job_states.load([key]))
            except Unreadable:
                continue
        return states
