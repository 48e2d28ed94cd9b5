import pytest

from punctual.tasks.container.sizes import (
    FARGATE_MEMORY_MB,
    FargateSize,
    NoSuchSize,
    choose_size,
    script_size,
)


@pytest.mark.parametrize(
    ("resources", "size"),
    [
        (None, FargateSize(0.25, 512)),
        ({}, FargateSize(0.25, 512)),
        ({"cpu": 0.5}, FargateSize(0.5, 1_024)),
        ({"cpu": 16}, FargateSize(16, 32_768)),
        ({"memory_mb": 512}, FargateSize(0.25, 512)),
        ({"memory_mb": 3_072}, FargateSize(0.5, 3_072)),
        ({"memory_mb": 122_880}, FargateSize(16, 122_880)),
        ({"cpu": 4, "memory_mb": 30_720}, FargateSize(4, 30_720)),
    ],
)
def test_size_takes_the_smallest_missing_field(resources: dict[str, float], size: object) -> None:
    assert choose_size(resources) == size


@pytest.mark.parametrize(
    ("resources", "field", "message"),
    [
        ({"cpu": 3}, "resources.cpu", "must be one of 0.25, 0.5, 1, 2, 4, 8, 16; got 3"),
        (
            {"cpu": 0.25, "memory_mb": 4_096},
            "resources.memory_mb",
            "must be 512, 1,024 or 2,048 with 0.25 vCPU; got 4,096",
        ),
        (
            {"cpu": 8, "memory_mb": 17_408},
            "resources.memory_mb",
            "must be 16,384 to 61,440 in steps of 4,096 with 8 vCPU; got 17,408",
        ),
        (
            {"memory_mb": 600},
            "resources.memory_mb",
            "must be a size of Fargate, 512 or whole gigabytes; got 600; the next is 1,024",
        ),
        (
            {"memory_mb": 122_881},
            "resources.memory_mb",
            "must be a size of Fargate, 512 or whole gigabytes; got 122,881",
        ),
    ],
)
def test_size_that_fargate_lacks_names_what_is_allowed(
    resources: dict[str, float], field: str, message: str
) -> None:
    with pytest.raises(NoSuchSize) as raised:
        choose_size(resources)
    assert (raised.value.field, str(raised.value)) == (field, message)


def test_every_size_of_fargate_is_chosen_by_both_fields() -> None:
    for vcpu, sizes in FARGATE_MEMORY_MB.items():
        for memory_mb in sizes:
            size = choose_size({"cpu": vcpu, "memory_mb": memory_mb})
            assert size == FargateSize(vcpu, memory_mb)
            assert size.cpu_units == vcpu * 1_024


@pytest.mark.parametrize(
    ("memory_mb", "size"),
    [
        (64, FargateSize(0.25, 512)),
        (384, FargateSize(0.25, 512)),
        (385, FargateSize(0.25, 1_024)),
        (2_000, FargateSize(0.5, 3_072)),
        (122_752, FargateSize(16, 122_880)),
    ],
)
def test_script_gets_the_smallest_size_with_room_for_its_runner(
    memory_mb: int, size: FargateSize
) -> None:
    assert script_size(memory_mb) == size


@pytest.mark.parametrize(
    ("memory_mb", "max_vcpu", "most"), [(122_753, 16, "122,752"), (1_921, 0.25, "1,920")]
)
def test_script_that_no_size_holds_is_refused_with_the_most(
    memory_mb: int, max_vcpu: float, most: str
) -> None:
    with pytest.raises(NoSuchSize) as refused:
        script_size(memory_mb, max_vcpu)
    assert refused.value.field == "resources.memory_mb"
    assert str(refused.value).startswith(f"must be at most {most} for a script in a container")
