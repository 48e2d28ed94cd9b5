"""Clients of botocore, created at first use or while a function's environment starts."""

import gc
from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # takes 80 ms, so it is imported with the first client
    from botocore.session import Session

# Read timeouts in seconds for functions that jobs invoke. An abandoned attempt keeps its thread and
# connection until its timeout, so short attempts need a short one.
INVOKING = (5, 30, 120, 900)
SLACK = 2.0  # seconds above the attempt's timeout, so that the attempt times out first
CREW = 16  # threads and open connections

SERVICES = ("dynamodb", "sqs", "s3", "events", "ssm", "lambda", "secretsmanager")


class Clients:
    """Lazy clients, so that a function without S3 does not pay for the S3 client.

    `session` is a session of boto3. Without it botocore creates the clients, which saves 15 ms of
    each cold start.
    """

    def __init__(self, session: Any = None) -> None:
        self._given = session
        self._invoking: dict[int, Any] = {}
        self._making = Lock()  # a session is not thread-safe; a client is
        self._made: list[Any] = []
        self._watches: list[Callable[[Any], None]] = []

    def watched(self, watch: Callable[[Any], None]) -> None:
        """Call `watch` with each client, including clients created later."""
        self._watches.append(watch)
        for client in self._made:
            watch(client)

    def prepare(self, *names: str) -> None:
        """Create these clients now.

        A starting environment has a whole processor, whatever its memory. Later an environment of
        512 MB has three tenths of one.
        """
        collected = gc.isenabled()
        gc.disable()  # collections would scan all models repeatedly and free nothing
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
        """Return a client of Lambda for an attempt of up to `seconds`."""
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
            # A slow function must not be invoked twice, so nothing is retried.
            retries = {"mode": "standard", "total_max_attempts": 1}
        elif service == "s3":
            # The default is version 2, which buckets created since 2020 reject.
            signature = "s3v4"
            # S3 needs longer for megabytes; other services answer in milliseconds or not at all.
            # Both tries together must end before an unrenewed lease expires.
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
