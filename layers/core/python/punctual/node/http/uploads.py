"""PUT requests with signed links: the body goes to a file, and never into memory as a whole."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from punctual.domain.errors import Unavailable
from punctual.node.files.blobs import FileBlobs, unavailable_on_os_error
from punctual.node.files.uploads import UPLOAD_PATH, UploadFile, UploadTicket, WrongContent
from punctual.node.http.parsing import API_ROOT, ClientDisconnected, Receive
from punctual.web.http.guards import CLOSE_HEADER
from punctual.web.http.problems import RequestRejected
from punctual.web.http.request import Reply

MAX_CONCURRENT_UPLOADS = 8
UPLOAD_THREADS = 4
UPLOAD_RAW_PATH = f"{API_ROOT}{UPLOAD_PATH}".encode()

T = TypeVar("T")


def is_upload(method: str, raw_path: bytes) -> bool:
    return method == "PUT" and raw_path.startswith(UPLOAD_RAW_PATH)


class Uploads:
    """Stores the bodies of PUT requests. Threads write and sync, so the event loop never waits."""

    def __init__(self, blobs: FileBlobs, max_concurrent: int = MAX_CONCURRENT_UPLOADS) -> None:
        self._blobs = blobs
        self._max_concurrent = max_concurrent
        self._under_way = 0
        self._threads = ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="upload")

    async def store(self, path: str, headers: Mapping[bytes, bytes], receive: Receive) -> Reply:
        """Store the body under the name that the link holds. Any failure stores nothing."""
        ticket = self._blobs.read_upload_link(path.removeprefix(UPLOAD_PATH))
        if ticket is None:
            text = "This upload link is not valid, or older than 15 minutes: ask for another one."
            raise RequestRejected("FORBIDDEN", text, CLOSE_HEADER)
        _check_length(headers, ticket.size)
        if self._under_way >= self._max_concurrent:
            raise Unavailable(f"{self._max_concurrent} uploads are under way: try again.")
        self._under_way += 1
        try:
            await self._store(ticket, receive)
        finally:
            self._under_way -= 1
        return Reply(200, b"", (), "")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _store(self, ticket: UploadTicket, receive: Receive) -> None:
        file = await self._in_thread(lambda: self._blobs.open_upload(ticket))
        try:
            await self._write_body(file, receive)
            await self._in_thread(file.finish)
        except WrongContent as error:
            raise RequestRejected("BAD_REQUEST", str(error), CLOSE_HEADER) from error
        finally:
            await self._in_thread(file.close)

    async def _write_body(self, file: UploadFile, receive: Receive) -> None:
        more_body = True
        while more_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            data: bytes = message.get("body", b"")
            if data:
                await self._in_thread(lambda: file.write(data))  # noqa: B023 awaited at once
            more_body = message.get("more_body", False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with unavailable_on_os_error():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)


def _check_length(headers: Mapping[bytes, bytes], size: int) -> None:
    announced = headers.get(b"content-length", b"")
    if announced != str(size).encode():
        text = f"Send the whole file at once, with Content-Length: {size}."
        raise RequestRejected("BAD_REQUEST", text, CLOSE_HEADER)
