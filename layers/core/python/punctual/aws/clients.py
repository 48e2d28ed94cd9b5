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
INVOKE_TIMEOUTS_SECONDS = (5, 30, 120, 900)
# Seconds above the attempt's timeout, so that the attempt times out first.
INVOKE_TIMEOUT_MARGIN_SECONDS = 2.0
ECS_TIMEOUT_SECONDS = 8  # a start of a task takes seconds where other calls take milliseconds
MAX_AWS_CONNECTIONS = 16  # threads and open connections

AWS_SERVICES = ("dynamodb", "sqs", "s3", "events", "ssm", "lambda", "secretsmanager", "ecs", "logs")


class Clients:
    """Lazy clients, so that a function without S3 does not pay for the S3 client.

    `session` is a session of boto3. Without it botocore creates the clients, which saves 15 ms of
    each cold start.
    """

    def __init__(self, session: Any = None) -> None:
        self._boto3_session = session
        self._lambda_clients: dict[int, Any] = {}
        self._create_lock = Lock()  # a session is not thread-safe; a client is
        self._created: list[Any] = []
        self._observers: list[Callable[[Any], None]] = []

    def add_observer(self, observe: Callable[[Any], None]) -> None:
        """Call `observe` with each client, including clients created later."""
        self._observers.append(observe)
        for client in self._created:
            observe(client)

    def prepare(self, *names: str) -> None:
        """Create these clients now.

        A starting environment has a whole processor, whatever its memory. Later an environment of
        512 MB has three tenths of one.
        """
        gc_was_enabled = gc.isenabled()
        gc.disable()  # collections would scan all models repeatedly and free nothing
        try:
            for name in names:
                getattr(self, name)
        finally:
            if gc_was_enabled:
                gc.enable()

    @cached_property
    def dynamodb(self) -> Any:
        return self._create("dynamodb")

    @cached_property
    def sqs(self) -> Any:
        return self._create("sqs")

    @cached_property
    def s3(self) -> Any:
        return self._create("s3")

    @cached_property
    def events(self) -> Any:
        return self._create("events")

    @cached_property
    def ssm(self) -> Any:
        return self._create("ssm")

    def lambda_client(self, timeout_seconds: float) -> Any:
        """Return a client of Lambda for an attempt of up to `timeout_seconds`."""
        read_timeout = next(
            (
                timeout
                for timeout in INVOKE_TIMEOUTS_SECONDS
                if timeout >= timeout_seconds + INVOKE_TIMEOUT_MARGIN_SECONDS
            ),
            INVOKE_TIMEOUTS_SECONDS[-1],
        )
        if read_timeout not in self._lambda_clients:
            client = self._create("lambda", read_timeout)
            self._lambda_clients.setdefault(read_timeout, client)
        return self._lambda_clients[read_timeout]

    @cached_property
    def ecs(self) -> Any:
        return self._create("ecs", ECS_TIMEOUT_SECONDS)

    @cached_property
    def logs(self) -> Any:
        return self._create("logs")

    @cached_property
    def secretsmanager(self) -> Any:
        return self._create("secretsmanager")

    @cached_property
    def _session(self) -> "Session":
        from punctual.aws.botocore_models import build_session

        return build_session(AWS_SERVICES)

    def _create(self, service: str, read_timeout: int = 3) -> Any:
        from botocore.config import Config

        retries: Any = {"mode": "standard", "max_attempts": 2}
        signature_version = None
        if service in ("lambda", "ecs"):
            # A slow function must not be invoked twice, so nothing is retried. Calls of ECS are
            # retried by their adapter, which also knows the throttles that ECS does not name.
            retries = {"mode": "standard", "total_max_attempts": 1}
        elif service == "s3":
            # The default is version 2, which buckets created since 2020 reject.
            signature_version = "s3v4"
            # S3 needs longer for megabytes; other services answer in milliseconds or not at all.
            # Both tries together must end before an unrenewed lease expires.
            retries = {"mode": "standard", "total_max_attempts": 2}
            read_timeout = 6
        config = Config(
            connect_timeout=1,
            read_timeout=read_timeout,
            retries=retries,
            signature_version=signature_version,
            tcp_keepalive=True,
            max_pool_connections=MAX_AWS_CONNECTIONS,
        )
        with self._create_lock:
            if self._boto3_session is not None:
                client = self._boto3_session.client(service, config=config)
            else:
                client = self._session.create_client(service, config=config)
            self._created.append(client)
        for observe in self._observers:
            observe(client)
        return client
