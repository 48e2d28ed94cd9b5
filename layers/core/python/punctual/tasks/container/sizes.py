"""The sizes of Fargate tasks: which processor share goes with which memory."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from punctual.tasks.limits import RUNNER_MEMORY_MB

CPU_UNITS_PER_VCPU = 1_024
DEFAULT_VCPU = 0.25


class FargateSize(NamedTuple):
    """The processors and the memory of a task."""

    vcpu: float
    memory_mb: int

    @property
    def cpu_units(self) -> int:
        return round(self.vcpu * CPU_UNITS_PER_VCPU)

    @classmethod
    def from_cpu_units(cls, cpu_units: int, memory_mb: int) -> "FargateSize":
        """Return the size of a task definition.

        >>> FargateSize.from_cpu_units(256, 512)
        FargateSize(vcpu=0.25, memory_mb=512)
        """
        return cls(cpu_units / CPU_UNITS_PER_VCPU, memory_mb)

    def __str__(self) -> str:
        return f"{self.vcpu:g} vCPU and {self.memory_mb:,} MB"


def _range(low_gb: int, high_gb: int, step_gb: int = 1) -> tuple[int, ...]:
    return tuple(gigabytes * 1_024 for gigabytes in range(low_gb, high_gb + 1, step_gb))


# The memory sizes in MB that Fargate has on Linux, by processors.
FARGATE_MEMORY_MB: Mapping[float, tuple[int, ...]] = {
    0.25: (512, 1_024, 2_048),
    0.5: _range(1, 4),
    1: _range(2, 8),
    2: _range(4, 16),
    4: _range(8, 30),
    8: _range(16, 60, 4),
    16: _range(32, 120, 8),
}
MAX_FARGATE_VCPU = max(FARGATE_MEMORY_MB)


class NoSuchSize(ValueError):
    """Fargate has no task of this size. `field` names the wrong resource."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def choose_size(resources: Mapping[str, Any] | None) -> FargateSize:
    """Return the size of a task. A missing field takes the smallest value that fits the other.

    >>> choose_size({"memory_mb": 8192}), choose_size({"cpu": 4})
    (FargateSize(vcpu=1, memory_mb=8192), FargateSize(vcpu=4, memory_mb=8192))
    >>> choose_size(None)
    FargateSize(vcpu=0.25, memory_mb=512)
    """
    wanted = resources or {}
    vcpu: float | None = wanted.get("cpu")
    memory_mb: int | None = wanted.get("memory_mb")
    if vcpu is None and memory_mb is None:
        vcpu = DEFAULT_VCPU
    if vcpu is None:
        assert memory_mb is not None
        for choice, sizes in FARGATE_MEMORY_MB.items():
            if memory_mb in sizes:
                return FargateSize(choice, memory_mb)
        raise NoSuchSize("resources.memory_mb", _memory_hint(memory_mb))
    if vcpu not in FARGATE_MEMORY_MB:
        choices = ", ".join(f"{choice:g}" for choice in FARGATE_MEMORY_MB)
        raise NoSuchSize("resources.cpu", f"must be one of {choices}; got {vcpu:g}")
    sizes = FARGATE_MEMORY_MB[vcpu]
    if memory_mb is None:
        return FargateSize(vcpu, sizes[0])
    if memory_mb not in sizes:
        raise NoSuchSize(
            "resources.memory_mb",
            f"must be {_describe(sizes)} with {vcpu:g} vCPU; got {memory_mb:,}",
        )
    return FargateSize(vcpu, memory_mb)


def script_size(memory_mb: int, max_vcpu: float = MAX_FARGATE_VCPU) -> FargateSize:
    """Return the smallest size for a script with this memory, and for its runner.

    >>> script_size(512), script_size(8_064)
    (FargateSize(vcpu=0.25, memory_mb=1024), FargateSize(vcpu=1, memory_mb=8192))
    """
    sizes = [
        FargateSize(vcpu, size_mb)
        for vcpu, choices in FARGATE_MEMORY_MB.items()
        if vcpu <= max_vcpu
        for size_mb in choices
    ]
    for size in sizes:
        if size.memory_mb >= memory_mb + RUNNER_MEMORY_MB:
            return size
    most_mb = max(size.memory_mb for size in sizes) - RUNNER_MEMORY_MB
    raise NoSuchSize(
        "resources.memory_mb",
        f"must be at most {most_mb:,} for a script in a container with {max(sizes).vcpu:g} vCPU; "
        f"got {memory_mb:,}",
    )


def _memory_hint(memory_mb: int) -> str:
    """Return the message for memory that no size has, with the next larger memory."""
    larger = [size for sizes in FARGATE_MEMORY_MB.values() for size in sizes if size > memory_mb]
    hint = f"; the next is {min(larger):,}" if larger else ""
    return f"must be a size of Fargate, 512 or whole gigabytes; got {memory_mb:,}{hint}"


def _describe(sizes: tuple[int, ...]) -> str:
    """Return the sizes as text.

    >>> _describe((512, 1024, 2048)), _describe(FARGATE_MEMORY_MB[2])
    ('512, 1,024 or 2,048', '4,096 to 16,384 in steps of 1,024')
    """
    if len(sizes) <= 3:
        *first, last = [f"{size:,}" for size in sizes]
        return f"{', '.join(first)} or {last}"
    return f"{sizes[0]:,} to {sizes[-1]:,} in steps of {sizes[1] - sizes[0]:,}"
