"""The memory that scripts of the node reserve."""

from pathlib import Path

import pytest

from punctual.node.script_memory import ScriptMemory, default_total_mb
from punctual.node.script_settings import ScriptSettings, WrongSettingError
from punctual.tasks.limits import memory_problems

GIB = 1024**3


def test_reserved_memory_is_free_after_its_release() -> None:
    memory = ScriptMemory(1_000)
    memory.reserve("a", 1, 600)
    assert (memory.used_mb, memory.free_mb) == (600, 400)
    memory.release("a", 1)
    assert memory.limit() == {"limit": "script_memory_mb", "allowed": 1_000, "used": 0}


def test_each_claim_reserves_and_releases_once() -> None:
    memory = ScriptMemory(1_000)
    memory.reserve("a", 1, 300)
    memory.reserve("a", 1, 300)
    memory.reserve("a", 2, 300)  # the next attempt, before the end of the first is handled
    memory.release("a", 1)
    memory.release("a", 1)
    assert memory.used_mb == 300


def test_rolled_back_transaction_reserves_nothing() -> None:
    memory = ScriptMemory(1_000)
    memory.reserve("kept", 1, 100)
    memory.on_commit()
    memory.reserve("lost", 1, 200)
    memory.on_rollback()
    assert memory.used_mb == 100


def test_run_that_can_never_fit_reserves_nothing() -> None:
    memory = ScriptMemory(1_000)
    memory.reserve("a", 1, 1_001)
    assert memory.used_mb == 0


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 8_192), (str(4 * GIB), 2_048), (str(64 * GIB), 8_192)]
)
def test_default_total_is_half_of_the_machine_or_its_container(
    tmp_path: Path, limit: str, expected: int
) -> None:
    file = tmp_path / "memory.max"
    file.write_text(f"{limit}\n")
    assert default_total_mb(lambda: 16 * GIB, file) == expected


def test_default_total_has_room_for_one_usual_script(tmp_path: Path) -> None:
    assert default_total_mb(lambda: GIB // 2, tmp_path / "none") == 512


def test_default_total_follows_this_machine() -> None:
    assert default_total_mb() >= 512


def test_total_is_read_from_its_setting(tmp_path: Path) -> None:
    def total_mb(text: str) -> int | None:
        return ScriptSettings.from_env({"PUNCTUAL_SCRIPT_MEMORY_MB": text}, tmp_path).memory_mb

    assert [total_mb(text) for text in ("", "64", "4096")] == [None, 64, 4_096]


@pytest.mark.parametrize("text", ["0", "63", "-1", "1.5", "1e3", "2GB", " 512", "٥١٢"])
def test_wrong_total_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(WrongSettingError) as raised:
        ScriptSettings.from_env({"PUNCTUAL_SCRIPT_MEMORY_MB": text}, tmp_path)
    assert raised.value.message == (
        f"PUNCTUAL_SCRIPT_MEMORY_MB must be a whole number of megabytes, at least 64; got {text!r}."
    )


def test_script_that_can_never_fit_has_a_problem() -> None:
    script = {"type": "script", "resources": {"memory_mb": 1_024}}
    assert list(memory_problems(script, 1_024)) == []
    ((field, message),) = memory_problems(script, 1_000)
    assert field == "resources.memory_mb"
    assert message.startswith("must be at most 1000, the megabytes of all scripts of this node")
    assert message.endswith("(PUNCTUAL_SCRIPT_MEMORY_MB); got 1024")


def test_default_of_a_script_may_be_too_much() -> None:
    ((field, message),) = memory_problems({"type": "script"}, 256)
    assert (field, message.partition("; ")[2]) == ("resources.memory_mb", "got 512, the default")
    assert list(memory_problems({"type": "http"}, 64)) == []
