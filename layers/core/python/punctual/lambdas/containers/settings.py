"""The settings of containers in a stage, as the stack writes them into the environment."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

CONTAINERS_VARIABLE = "PUNCTUAL_CONTAINERS"


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """Where and as what containers run. `image` runs scripts that are too long for a function."""

    cluster: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    has_public_address: bool
    task_role: str
    execution_role: str
    log_group: str
    region: str
    architecture: str
    family_prefix: str
    parameter_arn: str  # of the secrets of all tenants, up to the tenant
    max_vcpu: int
    bucket_arn: str  # of the objects that tasks read
    image: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "ContainerSettings | None":
        """Return the settings, or None where the stage has no containers.

        >>> ContainerSettings.from_env({})
        """
        text = env.get(CONTAINERS_VARIABLE, "")
        if not text:
            return None
        values = json.loads(text)
        for name in ("subnets", "security_groups"):
            values[name] = tuple(values[name])
        return cls(**values)

    def to_env(self) -> dict[str, str]:
        return {CONTAINERS_VARIABLE: json.dumps(asdict(self), separators=(",", ":"))}
