"""A node that asks for tokens, with runs that an external executor holds."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from punctual.auth.claim_tokens import ClaimTokens
from punctual.domain.errors import PreconditionFailed
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import RunView
from punctual.node.http.application import Application, build_application, node_services
from punctual.node.http.authentication import NodeAuthenticator
from punctual.node.http.claims import node_claims
from punctual.node.http.uploads import Uploads
from tests.support.builders import ManualClock
from tests.support.claims.outside import claim_new_run, claim_queued_run
from tests.support.names.own_names import own_name
from tests.support.node.node_world import World
from tests.support.web_client import Answer, ApplicationClient

TOKEN_KEY = bytes(range(32))


class ClaimsNode(ApplicationClient):
    """A client that sends no token to a node that asks for one."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        super().__init__()
        self.world = World(folder, clock)
        self.claim_tokens = ClaimTokens(lambda: TOKEN_KEY)
        self._uploads = Uploads(self.world.store.blobs)

    @cached_property
    def application(self) -> Application:
        node, clock = self.world.node, self.world.clock
        claims = node_claims(self.world.store, node.executor, self.claim_tokens, clock, self.log)
        return build_application(
            node_services(
                node.jobs,
                node.search,
                _NoTokens(),  # type: ignore[arg-type]
                clock=clock,
                quotas=_NoCalls(),  # type: ignore[arg-type]
                claims=claims,
            ),
            self._perform,
            self.log,
            authenticator=NodeAuthenticator(_NoTokens(), None, _no_background, self.log),
            uploads=self._uploads,
        )

    async def _perform(self, request: Callable[[], Any]) -> Any:
        return self.world.do(request)

    def start_run(self, tenant: str = "local", **fields: Any) -> str:
        """Submit a job, and claim its run at once for an external executor. Return the claim."""
        document = {"name": own_name("outside"), "schedule_type": "IMMEDIATE", **fields}
        node = self.world.node
        return claim_new_run(
            node, self.claim_tokens, lambda: node.jobs.submit(tenant, "me", [Submission(document)])
        )

    def claim_again(self, claim: str) -> str:
        """Claim the queued run of a former claim. Return the new claim."""
        key, world = JobKey(*self._ids(claim)[:2]), self.world

        def claim_queued() -> str:
            state = world.store.job_states.load([key])[key].state
            return claim_queued_run(world.node, self.claim_tokens, state)

        new_claim: str = world.do(claim_queued)
        return new_claim

    def put_upload(self, url: str, data: bytes) -> bool:
        """Send an output to the address of an upload. Return whether the node took it."""
        blobs = self.world.store.blobs
        ticket = blobs.read_upload_link(url.rpartition("/")[2])
        assert ticket is not None
        try:
            file = blobs.open_upload(ticket)
        except PreconditionFailed:
            return False
        file.write(data)
        file.finish()
        file.close()
        return True

    def run(self, claim: str) -> RunView:
        tenant, job_id, run_id = self._ids(claim)
        view: RunView = self.world.do(lambda: self.world.node.search.run(tenant, job_id, run_id))
        return view

    def log_text(self, claim: str, after: int = 0) -> bytes:
        ids = self._ids(claim)
        data: bytes = self.world.do(lambda: self.world.node.search.logs(*ids, after)).data
        return data

    def output(self, claim: str) -> bytes:
        ids = self._ids(claim)
        output = self.world.do(lambda: self.world.node.search.output(*ids))
        data: bytes = b"".join(output.content.pieces()) if output.content else output.data
        return data

    def renew(self, *claims: dict[str, Any]) -> Answer:
        return self.post("/v1/claims/renew", {"claims": list(claims)})

    def finish(self, *claims: dict[str, Any]) -> Answer:
        return self.post("/v1/claims/finish", {"claims": list(claims)})

    def close(self) -> None:
        self._uploads.close()
        self.world.gate.open.set()
        for workers in self.world.workers.values():
            workers.close(10)
        self.world.store.close()

    def _ids(self, claim: str) -> tuple[str, str, str]:
        identity = self.claim_tokens.read(claim)
        assert identity is not None
        return identity.tenant, identity.job_id, identity.run_id


def statuses(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [result["status"] for result in answer.json["results"]]


class _NoTokens:
    """A store of tokens that no call by claim may ask."""

    def identify(self, text: str) -> Any:
        raise AssertionError(f"a token was checked: {text}")


class _NoCalls:
    """Limits of tenants that no call by claim may count against."""

    def check_call(self, tenant: str) -> None:
        raise AssertionError(f"a call of {tenant} was counted")


async def _no_background(work: Callable[[], Any]) -> Any:
    raise AssertionError(f"work in the background: {work}")
