"""The settings of a deployment. The stack writes them, and functions read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PRODUCT_VERSION = "0.1.0"

ENV_PREFIX = "PUNCTUAL_"
DEFAULT_SCRIPT_MEMORY_MB = 512
DEFAULT_SCRIPT_ARCHITECTURE = "x86_64"
DEFAULT_LIST_SLOTS = 4
DEFAULT_FEED_SLOTS = 1
DEFAULT_OPERATIONS_PER_SECOND = 200
OPERATION_CONCURRENCY = 2  # functions that carry out operations at the same time; AWS's minimum
_ON, _OFF = "on", "off"


class InvalidSettings(ValueError):
    """A setting that the stack writes is missing or invalid in the environment."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The names of tables, bucket and bus, the URLs of queues, and the options of the stage."""

    stage: str
    jobs_table: str
    timers_table: str
    runs_table: str
    control_table: str
    audit_table: str
    lists_table: str
    bucket: str
    wake_queue: str
    operation_queue: str
    event_bus: str
    knobs: str  # prefix of the SSM parameters that operators change
    metrics: bool = True
    # The changes of runs that go to the event bus, at a dollar a million: "all", "ended", "none".
    run_events: str = "ended"
    # Private networks, as CIDRs, that `http` tasks may call.
    networks: tuple[str, ...] = ()
    # Functions and queues that tasks may name, by tenant (`tasks/reach.py`). Empty means none.
    reach: str = "[{},{}]"
    # The processors that all containers of the stage share. 0 if it runs no containers.
    max_container_vcpu: int = 0
    # The partitions of each list of a tenant: of its jobs, their names, and so on.
    list_slots: int = DEFAULT_LIST_SLOTS
    # The partitions of the change feed of a tenant.
    feed_slots: int = DEFAULT_FEED_SLOTS
    # The jobs or runs that all operations of the stage act on in a second.
    operations_per_second: int = DEFAULT_OPERATIONS_PER_SECOND
    # Whether scripts that a function cannot run go to containers, which takes an image for them.
    container_scripts: bool = False
    # The limits of each tenant, "jobs=500 burst=null". None if the stage has no limits.
    limits: str | None = None
    # The most memory that a script may use, and the processor of the functions that run scripts.
    script_memory_mb: int = DEFAULT_SCRIPT_MEMORY_MB
    script_architecture: str = DEFAULT_SCRIPT_ARCHITECTURE
    # URLs by lane and priority, "quick-high". A lane with a single queue is "long".
    queues: Mapping[str, str] = field(default_factory=dict)
    # The number of executors that take from each queue at a time, by the same names.
    places: Mapping[str, int] = field(default_factory=dict)
    # The reserved concurrency of each script function that has one, by its name.
    script_places: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """
        >>> Settings.from_env({"PUNCTUAL_STAGE": "dev"})
        Traceback (most recent call last):
        punctual.settings.InvalidSettings: not set: PUNCTUAL_AUDIT_TABLE, PUNCTUAL_BUCKET, \
PUNCTUAL_CONTROL_TABLE, PUNCTUAL_EVENT_BUS, PUNCTUAL_JOBS_TABLE, PUNCTUAL_KNOBS, \
PUNCTUAL_LISTS_TABLE, PUNCTUAL_METRICS, PUNCTUAL_OPERATION_QUEUE, PUNCTUAL_QUEUES, \
PUNCTUAL_RUNS_TABLE, PUNCTUAL_RUN_EVENTS, PUNCTUAL_TIMERS_TABLE, PUNCTUAL_WAKE_QUEUE
        """
        names = {name: ENV_PREFIX + name.upper() for name in cls.__slots__}
        networks_variable, limits_variable = names.pop("networks"), names.pop("limits")
        places_variable, reach_variable = names.pop("places"), names.pop("reach")
        script_places_variable = names.pop("script_places")
        container_variable = names.pop("max_container_vcpu")
        list_slots_variable = names.pop("list_slots")
        feed_slots_variable = names.pop("feed_slots")
        operations_variable = names.pop("operations_per_second")
        container_scripts_variable = names.pop("container_scripts")
        memory_variable = names.pop("script_memory_mb")
        architecture_variable = names.pop("script_architecture")
        missing = sorted(variable for variable in names.values() if not env.get(variable))
        if missing:
            raise InvalidSettings(f"not set: {', '.join(missing)}")
        values = {name: env[variable] for name, variable in names.items()}
        return cls(
            **{  # type: ignore[arg-type]
                **values,
                "queues": _parse_pairs(values["queues"]),
                "metrics": _parse_switch(values["metrics"]),
                "networks": tuple(env.get(networks_variable, "").split()),
                "limits": _parse_limits(env.get(limits_variable, "")),
                "places": _parse_numbers(env.get(places_variable, "")),
                "script_places": _parse_numbers(env.get(script_places_variable, "")),
                "reach": env.get(reach_variable, "[{},{}]"),
                "max_container_vcpu": int(env.get(container_variable) or 0),
                "list_slots": int(env.get(list_slots_variable, DEFAULT_LIST_SLOTS)),
                "feed_slots": int(env.get(feed_slots_variable, DEFAULT_FEED_SLOTS)),
                "operations_per_second": int(
                    env.get(operations_variable, DEFAULT_OPERATIONS_PER_SECOND)
                ),
                "container_scripts": env.get(container_scripts_variable) == _ON,
                "script_memory_mb": int(env.get(memory_variable, DEFAULT_SCRIPT_MEMORY_MB)),
                "script_architecture": env.get(architecture_variable, DEFAULT_SCRIPT_ARCHITECTURE),
            }
        )

    def to_env(self) -> dict[str, str]:
        values = {name: getattr(self, name) for name in self.__slots__}
        values["queues"] = " ".join(f"{name}={url}" for name, url in self.queues.items())
        for name in ("places", "script_places"):
            numbers: Mapping[str, int] = values[name]
            values[name] = " ".join(f"{key}={number}" for key, number in numbers.items())
        values["metrics"] = _ON if self.metrics else _OFF
        values["networks"] = " ".join(self.networks)
        values["container_scripts"] = _ON if self.container_scripts else ""
        values["script_memory_mb"] = str(self.script_memory_mb)
        values["limits"] = "" if self.limits is None else f"{_ON} {self.limits}".strip()
        return {ENV_PREFIX + name.upper(): str(value) for name, value in values.items() if value}


def _parse_limits(text: str) -> str | None:
    """
    >>> _parse_limits("on jobs=5"), _parse_limits("on"), _parse_limits("")
    ('jobs=5', '', None)
    """
    if not text:
        return None
    switch, _, limits_text = text.partition(" ")
    _parse_switch(switch)
    return limits_text


def _parse_switch(text: str) -> bool:
    if text not in (_ON, _OFF):
        raise InvalidSettings(f"{ENV_PREFIX}METRICS: {text!r} is neither {_ON} nor {_OFF}")
    return text == _ON


def _parse_numbers(text: str) -> dict[str, int]:
    """
    >>> _parse_numbers("quick=4 long=2")
    {'quick': 4, 'long': 2}
    """
    pairs = (pair.partition("=") for pair in text.split())
    return {name: int(number) for name, _, number in pairs}


def _parse_pairs(text: str) -> dict[str, str]:
    """
    >>> _parse_pairs("quick=https://a long=https://b")
    {'quick': 'https://a', 'long': 'https://b'}
    """
    pairs = {}
    for pair in text.split():
        name, equals, url = pair.partition("=")
        if not (name and equals and url):
            raise InvalidSettings(f"{ENV_PREFIX}QUEUES: {pair!r} is not name=url")
        pairs[name] = url
    return pairs
