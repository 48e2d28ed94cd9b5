"""botocore's clients, each made when it is first used, or while a function's environment starts."""

import gc
from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported with the first client: 80 ms
    from botocore.session import Session

# How long functions that jobs invoke are waited for: an attempt that was given up leaves its thread
# and its connection for no longer, so that many short ones cannot pile up in one environment.
INVOKING = (5, 30, 120, 900)
SLACK = 2.0  # seconds beyond the attempt's own, which ends by its timeout and not by this
CREW = 16  # calls at the same time; as many connections are kept open

SERVICES = ("dynamodb", "sqs", "s3", "events", "ssm", "lambda", "secretsmanager")


class Clients:
    """Made lazily: a function that never touches S3 does not pay for its client.

    `session` is one of boto3's. Without it they are made by botocore alone: boto3 adds nothing
    to them that is used here, and 15 ms to each start.
    """

    def __init__(self, session: Any = None) -> None:
        self._given = session
        self._invoking: dict[int, Any] = {}
        self._making = Lock()  # a session is not safe to use from several threads, a client is
        self._made: list[Any] = []
        self._watches: list[Callable[[Any], None]] = []

    def watched(self, watch: Callable[[Any], None]) -> None:
        """Show each client to this, those that are made later too."""
        self._watches.append(watch)
        for client in self._made:
            watch(client)

    def prepare(self, *names: str) -> None:
        """Make these now.

        While an environment starts it has a whole processor, whatever its memory; at the first
        event, of 512 MB, three tenths of one.
        """
        collected = gc.isenabled()
        gc.disable()  # it would look through all models again and again, and find nothing
        try:
            for name in names:
                getattr(self, name)
        finally:
            if collected:
                gc.enable()

    @cached_property
    def dynamodb(self) -> Any:
        return self._client("dynamodb")

    @cached_property
    def sqs(self) -> Any:
        return self._client("sqs")

    @cached_property
    def s3(self) -> Any:
        return self._client("s3")

    @cached_property
    def events(self) -> Any:
        return self._client("events")

    @cached_property
    def ssm(self) -> Any:
        return self._client("ssm")

    def invoking(self, seconds: float) -> Any:
        """A client for an attempt that may take so long."""
        longest = next((one for one in INVOKING if one >= seconds + SLACK), INVOKING[-1])
        if longest not in self._invoking:
            made = self._client("lambda", longest)
            self._invoking.setdefault(longest, made)
        return self._invoking[longest]

    @cached_property
    def secretsmanager(self) -> Any:
        return self._client("secretsmanager")

    @cached_property
    def _session(self) -> "Session":
        from punctual.aws.botocore_models import session

        return session(SERVICES)

    def _client(self, service: str, read_timeout: int = 3) -> Any:
        from botocore.config import Config

        retries: Any = {"mode": "standard", "max_attempts": 2}
        signature = None
        if service == "lambda":
            # A function that jobs invoke may take its time, and must not be run twice for that.
            retries = {"mode": "standard", "total_max_attempts": 1}
        elif service == "s3":
            # Without it links are signed by version 2, which no bucket made since 2020 accepts.
            signature = "s3v4"
            # Claims that are not renewed meanwhile must outlive this; and it takes its time with
            # megabytes, where the others answer in milliseconds or not at all.
            retries = {"mode": "standard", "total_max_attempts": 2}
            read_timeout = 6
        config = Config(
            connect_timeout=1,
            read_timeout=read_timeout,
            retries=retries,
            signature_version=signature,
            tcp_keepalive=True,
            max_pool_connections=CREW,
        )
        with self._making:
            if self._given is not None:
                client = self._given.client(service, config=config)
            else:
                client = self._session.create_client(service, config=config)
            self._made.append(client)
        for watch in self._watches:
            watch(client)
        return client
