"""Renews the claim of a run while it goes on, in a thread of its own."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from punctual.domain.leases import RENEWAL_INTERVAL, RENEWAL_TIMEOUT
from punctual.runner.claim_client import FIRST_PAUSE_SECONDS, ClaimClient, Refused, pause_after
from punctual.runner.http_client import CallFailed
from punctual.runner.live_log import MAX_LOG_PART_BYTES, LiveLog
from punctual.tasks.contract import StopSignal

JOIN_SECONDS = 6.0  # longer than the deadline of a call


class Heartbeat:
    """Renews the claim each 4 s, with the new part of the log.

    On CANCEL and LOST it stops the run. The run also stops if no renewal succeeded for 10 s, since
    another executor may have the run then. `wait` waits the given seconds and returns True at the
    end of the run.
    """

    def __init__(
        self,
        client: ClaimClient,
        log: LiveLog,
        monotonic: Callable[[], float],
        *,
        started_at: str,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._client = client
        self._log = log
        self._monotonic = monotonic
        self._started_at = started_at
        self.renewed_at = monotonic()
        self._ending = threading.Event()
        self._wait = wait or self._ending.wait
        self._call_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.stop = StopSignal(self.has_expired)
        self.is_cancelled = False

    def has_expired(self) -> bool:
        """Return True if the last renewal is too long ago."""
        return self._monotonic() - self.renewed_at > RENEWAL_TIMEOUT.total_seconds()

    @property
    def is_lost(self) -> bool:
        return self.stop.reason() == "LOST"

    def start(self) -> None:
        self._thread = threading.Thread(target=self.beat, name="heartbeat", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Make no more renewals."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def renew(self) -> None:
        """Renew the claim once. Raise CallFailed or Refused without a renewal."""
        with self._call_lock:
            if self._ending.is_set() and self.is_lost:
                return
            begun_at = self._monotonic()
            part = self._log.next_part()
            status = self._client.renew(part, self._started_at)
            if status == "LOST":
                self.stop.request_stop("LOST")
                return
            self.renewed_at = begun_at
            self._started_at = ""
            self._log.confirm(part)
            if status == "CANCEL":
                self.is_cancelled = True
                self.stop.request_stop("CANCEL")

    def finish(self, fields: Mapping[str, Any]) -> None:
        """Finish the run with the last part of the log. Meanwhile the log has no other sender."""
        with self._call_lock:
            part = self._log.next_part()
            # The offset tells the API that parts of the log were sent before.
            log: dict[str, Any] = {"log_offset": part.offset}
            if part.text:
                log["log"] = part.text
            if self._client.finish({**fields, **log}) == "LOST":
                self.stop.request_stop("LOST")
            else:
                self._log.confirm(part)

    def beat(self) -> None:
        """Renew the claim until the end of the run, or until it is lost."""
        pause_seconds = RENEWAL_INTERVAL.total_seconds()
        while not self._wait(pause_seconds) and not self.is_lost:
            try:
                self.renew()
            except CallFailed as error:
                pause_seconds = pause_after(error, FIRST_PAUSE_SECONDS * 2)
            except Refused:
                pause_seconds = RENEWAL_INTERVAL.total_seconds()
            else:
                has_more = self._log.pending_bytes > MAX_LOG_PART_BYTES
                pause_seconds = 0.0 if has_more else self._seconds_to_next_renewal()

    def _seconds_to_next_renewal(self) -> float:
        """Return the rest of the interval since the begin of the last renewal."""
        elapsed_seconds = self._monotonic() - self.renewed_at
        return max(RENEWAL_INTERVAL.total_seconds() - elapsed_seconds, FIRST_PAUSE_SECONDS)
