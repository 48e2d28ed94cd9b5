"""Artifacts: rows with compare and swap, rows that expire, and the jobs that use them."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.artifacts import Artifact, ArtifactStatus, artifact_id_of
from punctual.engine.ports.tenants.artifact_rows import ArtifactUse
from tests.support.aws.adapters import World
from tests.support.builders import NOON
from tests.support.ports import Ports

DAY = timedelta(days=1)


def an_artifact(number: int = 0, tenant: str = "acme", revision: str = "r1") -> Artifact:
    digest = f"{number:064x}"
    return Artifact(
        *(tenant, artifact_id_of(tenant, digest), digest, 5, "a.py", ArtifactStatus.STORED),
        *(NOON, "ann", revision),
    )


def test_write_needs_the_stored_revision(ports: Ports) -> None:
    first = an_artifact()
    assert not ports.artifacts.store(first, "r0")
    assert ports.artifacts.store(first, "")
    other = replace(first, name="b.py", revision="r2")
    assert not ports.artifacts.store(other, "")
    assert not ports.artifacts.store(other, "r0")
    assert ports.artifacts.store(other, "r1")
    assert ports.artifacts.load("acme", [first.artifact_id]) == {first.artifact_id: other}


def test_artifact_belongs_to_one_tenant(ports: Ports) -> None:
    ports.artifacts.store(an_artifact(), "")
    assert not ports.artifacts.load("globex", [an_artifact().artifact_id])
    assert list(ports.artifacts.page("globex", None, 10)) == []


@pytest.mark.parametrize("status", [ArtifactStatus.PENDING, ArtifactStatus.REMOVING])
def test_row_of_an_upload_that_did_not_come_expires(
    world: World, ports: Ports, status: ArtifactStatus
) -> None:
    pending = replace(an_artifact(), status=status, deleted_at=NOON)
    assert ports.artifacts.store(pending, "")
    world.clock.advance(DAY - timedelta(seconds=2))
    assert ports.artifacts.load("acme", [pending.artifact_id])
    world.clock.advance(timedelta(seconds=2))
    assert not ports.artifacts.load("acme", [pending.artifact_id])
    assert not ports.artifacts.page("acme", None, 10)
    assert ports.artifacts.store(replace(pending, revision="r9"), "")


@pytest.mark.parametrize("status", [ArtifactStatus.STORED, ArtifactStatus.DELETED])
def test_row_with_content_does_not_expire(
    world: World, ports: Ports, status: ArtifactStatus
) -> None:
    stored = replace(an_artifact(), status=status, deleted_at=NOON)
    ports.artifacts.store(stored, "")
    world.clock.advance(400 * DAY)
    assert ports.artifacts.load("acme", [stored.artifact_id]) == {stored.artifact_id: stored}


def test_removal_spares_a_newer_row(ports: Ports) -> None:
    old, new = an_artifact(), an_artifact(revision="r2")
    ports.artifacts.store(old, "")
    ports.artifacts.store(new, "r1")
    ports.artifacts.remove(old)
    assert ports.artifacts.load("acme", [old.artifact_id]) == {old.artifact_id: new}
    ports.artifacts.remove(new)
    assert ports.artifacts.load("acme", [old.artifact_id]) == {}
    ports.artifacts.remove(new)
    assert ports.artifacts.store(old, "")


def test_pages_have_each_artifact_once_in_order(ports: Ports) -> None:
    rows = [an_artifact(number) for number in range(7)]
    for row in rows:
        ports.artifacts.store(row, "")
    ids: list[str] = []
    while page := ports.artifacts.page("acme", ids[-1] if ids else None, 3):
        assert len(page) <= 3
        ids += [row.artifact_id for row in page]
    assert ids == sorted(row.artifact_id for row in rows)


def test_uses_have_pages_and_are_removed_one_by_one(ports: Ports) -> None:
    uses = [ArtifactUse("a1", f"job-{number}", NOON) for number in range(5)]
    ports.artifacts.put_uses("acme", uses)
    ports.artifacts.put_uses("acme", [ArtifactUse("a2", "job-9", NOON)])
    assert list(ports.artifacts.uses("acme", "a1", None, 3)) == uses[:3]
    assert list(ports.artifacts.uses("acme", "a1", "job-2", 3)) == uses[3:]
    assert list(ports.artifacts.uses("globex", "a1", None, 3)) == []
    first = ports.artifacts.first_uses("acme", ["a1", "none", "a2"], 2)
    assert [list(each) for each in first] == [uses[:2], [], [ArtifactUse("a2", "job-9", NOON)]]
    assert list(ports.artifacts.first_uses("acme", [], 2)) == []
    ports.artifacts.remove_uses("acme", uses[1:3])
    assert list(ports.artifacts.uses("acme", "a1", None, 9)) == [uses[0], *uses[3:]]


def test_removal_of_a_use_spares_one_that_was_noted_again(ports: Ports) -> None:
    old, new = (ArtifactUse("a1", "job-1", NOON + second * DAY) for second in (0, 1))
    ports.artifacts.put_uses("acme", [old])
    ports.artifacts.put_uses("acme", [new])
    ports.artifacts.remove_uses("acme", [old])
    assert list(ports.artifacts.uses("acme", "a1", None, 9)) == [new]
