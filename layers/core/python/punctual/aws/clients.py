"""boto3's clients, each made when it is first used."""

from functools import cached_property
from threading import Lock
from typing import Any

CREW = 16  # calls at the same time; as many connections are kept open


class Clients:
    """Made lazily: a function that never touches S3 does not pay for its client."""

    def __init__(self, session: Any = None) -> None:
        self._given = session
        self._making = Lock()  # a session is not safe to use from several threads, a client is

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
    def _session(self) -> Any:
        import boto3

        return self._given or boto3.Session()

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        retries: Any = {"mode": "standard", "max_attempts": 2}
        if service == "lambda":
            # A function that jobs invoke may take its time, and must not be run twice for that.
            retries = {"mode": "standard", "total_max_attempts": 1}
        config = Config(
            connect_timeout=1,
            # S3 moves megabytes; the others answer in milliseconds or not at all.
            read_timeout={"s3": 20, "lambda": 900}.get(service, 3),
            retries=retries,
            tcp_keepalive=True,
            max_pool_connections=CREW,
        )
        with self._making:
            return self._session.client(service, config=config)
