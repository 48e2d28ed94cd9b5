"""Commands that act on many jobs or runs, and the operations behind them."""

from tests.e2e.cli.program import Program, normalized


def create_jobs(program: Program, prefix: str, count: int) -> None:
    for number in range(count):
        tag = ("--tag", f"set={prefix}")
        program("jobs", "create", f"{prefix}-{number}", "--cron", "0 2 1 1 *", *tag)


def test_filters_take_the_place_of_a_job(program: Program) -> None:
    create_jobs(program, "night", 3)
    shown = program("jobs", "pause", "--tag", "set=night", "--dry-run").out
    assert normalized(shown).splitlines()[0] == "3 jobs:"
    assert program.json("jobs", "show", "night-0")["status"] == "SCHEDULED"
    until = ("--until", "+2h", "--note", "a move")
    paused = program("jobs", "pause", "--tag", "set=night", *until, "--yes").out
    assert paused.splitlines()[-1] == "3 jobs paused."
    pause = program.json("jobs", "show", "night-2")["pause"]
    assert pause["note"] == "a move"


def test_resume_reaches_what_one_operation_paused(program: Program) -> None:
    create_jobs(program, "stock", 2)
    program("jobs", "pause", "stock-0")
    operation = program.json("jobs", "pause", "--tag", "set=stock", "--yes")
    assert (operation["matched"], operation["status"]) == (1, "DONE")
    resumed = program("jobs", "resume", "--paused-by", operation["operation_id"], "--yes").out
    assert resumed.splitlines()[-1] == "1 job resumed."
    assert program.json("jobs", "show", "stock-0")["status"] == "PAUSED"
    assert program.json("jobs", "show", "stock-1")["status"] == "SCHEDULED"


def test_operation_is_listed_shown_and_watched(program: Program) -> None:
    create_jobs(program, "tmp", 2)
    operation = program.json("jobs", "cancel", "--name-prefix", "tmp-", "--yes")
    operation_id = operation["operation_id"]
    assert operation_id in program("operations", "list").out
    card = normalized(program("operations", "show", operation_id).out)
    assert "Matched     2 jobs" in card
    assert "Filter      name_prefix=tmp-" in card
    assert program("operations", "watch", operation_id).out == "2 jobs cancelled.\n"
    assert program.json("operations", "cancel", operation_id)["status"] == "DONE"


def test_nothing_is_changed_without_a_confirmation(program: Program) -> None:
    create_jobs(program, "kept", 1)
    refused = program("jobs", "cancel", "--tag", "set=kept", code=2)
    assert "Confirm with --yes." in refused.err
    assert program.json("jobs", "show", "kept-0")["status"] == "SCHEDULED"


def test_a_job_and_filters_are_one_or_the_other(program: Program) -> None:
    both = program("jobs", "pause", "a-job", "--tag", "team=data", code=2)
    assert "A job and filters cannot be given together." in both.err
    neither = program("jobs", "pause", code=2)
    assert "Name a job, or filters such as --tag team=data." in neither.err


def test_wrong_filter_is_named(program: Program) -> None:
    refused = program("jobs", "resume", "--paused-by", "yesterday", "--yes", code=4)
    assert "filter.paused_by: must be the id of an operation" in refused.err


def test_runs_are_retried_by_filter(program: Program) -> None:
    create = ("jobs", "create", "broken", "--at", "now", "--bash", "exit 3", "--retries", "0")
    program(*create)
    program("runs", "watch", "broken", code=1)
    retried = program("runs", "retry", "--job-name", "broken", "--latest-only", "--yes").out
    assert retried.splitlines()[-1] == "1 run retried."
    again = program("runs", "retry", "--job-name", "broken", "--status", "SUCCESS", "--yes").out
    assert again == "No run matches.\n"
    program("jobs", "cancel", "broken")  # it would stay an open failure of the shared node
