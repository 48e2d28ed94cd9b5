"""botocore's clients, each made when it is first used, or while a function's environment starts."""

import gc
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported with the first client: 80 ms
    from botocore.session import Session

CREW = 16  # calls at the same time; as many connections are kept open

SERVICES = ("dynamodb", "sqs", "s3", "events", "ssm", "lambda", "secretsmanager")


class Clients:
    """Made lazily: a function that never touches S3 does not pay for its client.

    `session` is one of boto3's. Without it they are made by botocore alone: boto3 adds nothing
    to them that is used here, and 15 ms to each start.
    """

    def __init__(self, session: Any = None) -> None:
        self._given = session
        self._making = Lock()  # a session is not safe to use from several threads, a client is

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

    @cached_property
    def awslambda(self) -> Any:
        return self._client("lambda")

    @cached_property
    def secretsmanager(self) -> Any:
        return self._client("secretsmanager")

    @cached_property
    def _session(self) -> "Session":
        from punctual.aws.models import session

        return session(SERVICES)

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        retries: Any = {"mode": "standard", "max_attempts": 2}
        if service == "lambda":
            # A function that jobs invoke may take its time, and must not be run twice for that.
            retries = {"mode": "standard", "total_max_attempts": 1}
        elif service == "s3":
            # Claims that are not renewed meanwhile must outlive this.
            retries = {"mode": "standard", "total_max_attempts": 2}
        config = Config(
            connect_timeout=1,
            # S3 takes its time with megabytes; the others answer in milliseconds or not at all.
            read_timeout={"s3": 6, "lambda": 900}.get(service, 3),
            retries=retries,
            tcp_keepalive=True,
            max_pool_connections=CREW,
        )
        with self._making:
            if self._given is not None:
                return self._given.client(service, config=config)
            return self._session.create_client(service, config=config)
