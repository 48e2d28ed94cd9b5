"""A call that a test holds in the middle. It has a thread of its own, and never runs beside the
test: one of the two waits for the other."""

from collections.abc import Callable
from contextlib import suppress
from threading import Semaphore, Thread

from tests.support.simulation.port_faults import Crash


class HeldCall:
    def __init__(self, call: Callable[[], object]) -> None:
        self.is_over = False
        self._call = call
        self._to_call, self._to_test = Semaphore(0), Semaphore(0)
        self._error: BaseException | None = None
        self._is_killed = False
        Thread(target=self._run, daemon=True, name="held call").start()

    def go_on(self) -> None:
        """Run the call until it pauses or ends. Raise its error."""
        assert not self.is_over
        self._to_call.release()
        self._to_test.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def pause(self) -> None:
        """Wait until the test lets the call go on. The call itself calls this."""
        self._to_test.release()
        self._to_call.acquire()
        if self._is_killed:
            raise Crash("killed")

    def kill(self) -> None:
        """End the call where it is."""
        self._is_killed = True
        with suppress(Crash):
            self.go_on()

    def _run(self) -> None:
        self._to_call.acquire()
        try:
            self._call()
        except BaseException as error:  # the test raises it
            self._error = error
        self.is_over = True
        self._to_test.release()
