"""Who is to be told of a job's runs: the entries of `notify`, and what they mean."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from punctual.web.features import Features
from punctual.web.models.schedule import AddError, StrictModel
from punctual.web.models.task import MAX_URL_CHARACTERS

Outcome = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"]
MAX_NOTIFY_ENTRIES = 5


class Notify(StrictModel):
    on: Annotated[list[Outcome], Field(min_length=1, max_length=6)]
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]


def check_notify(
    entries: Sequence[Mapping[str, Any] | None], features: Features, add: AddError
) -> None:
    """Of what has the right type; where an entry has not, there is nothing in its place."""
    for place, entry in enumerate(entries):
        on, url = (entry or {}).get("on"), (entry or {}).get("url")
        if on and len(set(on)) < len(on):
            add(f"notify.{place}.on", "must not name a status twice")
        if url is None:
            continue
        problem = features.check_url(url)
        if "{{" in url:
            problem = "takes no placeholders: a webhook has no payload, and is signed instead"
        if problem:
            add(f"notify.{place}.url", problem)
