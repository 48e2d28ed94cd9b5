"""What a deployment tells the code that runs in it: the stack writes it, a function reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "PUNCTUAL_"


class WrongSettings(ValueError):
    """The environment lacks what the stack should have written there."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Names of tables and bucket, addresses of queues."""

    jobs_table: str
    timers_table: str
    runs_table: str
    control_table: str
    bucket: str
    wake_queue: str
    event_bus: str
    # By lane and priority, "quick-high"; a lane whose priorities share one queue is just "quick".
    queues: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """
        >>> Settings.from_env({})
        Traceback (most recent call last):
        punctual.settings.WrongSettings: not set: PUNCTUAL_BUCKET, PUNCTUAL_CONTROL_TABLE, \
PUNCTUAL_EVENT_BUS, PUNCTUAL_JOBS_TABLE, PUNCTUAL_QUEUES, PUNCTUAL_RUNS_TABLE, \
PUNCTUAL_TIMERS_TABLE, PUNCTUAL_WAKE_QUEUE
        """
        names = {name: PREFIX + name.upper() for name in cls.__slots__}
        missing = sorted(variable for variable in names.values() if not env.get(variable))
        if missing:
            raise WrongSettings(f"not set: {', '.join(missing)}")
        values = {name: env[variable] for name, variable in names.items()}
        return cls(**{**values, "queues": _pairs(values["queues"])})  # type: ignore[arg-type]

    def to_env(self) -> dict[str, str]:
        pairs = " ".join(f"{name}={url}" for name, url in self.queues.items())
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "queues"}
        return {PREFIX + name.upper(): value for name, value in {**plain, "queues": pairs}.items()}


def _pairs(text: str) -> dict[str, str]:
    """
    >>> _pairs("quick=https://a long=https://b")
    {'quick': 'https://a', 'long': 'https://b'}
    """
    found = {}
    for pair in text.split():
        name, equals, url = pair.partition("=")
        if not (name and equals and url):
            raise WrongSettings(f"{PREFIX}QUEUES: {pair!r} is not name=address")
        found[name] = url
    return found
