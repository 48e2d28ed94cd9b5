"""Claims of runs for an external executor, on a node that would else start them itself."""

from collections.abc import Callable, Sequence
from typing import Any

from punctual.auth.claim_tokens import ClaimTokens
from punctual.domain.claims import ClaimIdentity
from punctual.domain.job_state import JobState
from punctual.engine.changes.effects import message_of
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import JobView
from punctual.node.node import Node


def claim_new_run(
    node: Node, claim_tokens: ClaimTokens, submit: Callable[[], Sequence[Any]]
) -> str:
    """Submit a job, and claim its run in the same transaction, before a worker of the node can."""

    def submit_and_claim() -> str:
        (view,) = submit()
        assert isinstance(view, JobView)
        return claim_queued_run(node, claim_tokens, view.state)

    (claim,) = node.perform([submit_and_claim])
    if isinstance(claim, Exception):
        raise claim
    return claim


def claim_queued_run(node: Node, claim_tokens: ClaimTokens, state: JobState) -> str:
    """Claim the only run of a job, in a transaction of the node. Return the claim."""
    key = JobKey(state.tenant, state.job_id)
    (run,) = state.runs
    (claimed,) = node.executor.claim([message_of(key, run, state)]).claimed
    run = claimed.run
    node.executor.renew([(key, run.run_id, run.token)], is_first=True)
    return claim_tokens.sign(ClaimIdentity(*key, run.run_id, run.attempt, run.token))
