"""A simple model of QUEUE and SKIP, with names in lists and without time."""

from dataclasses import dataclass, field


@dataclass
class Model:
    """A job with `active` runs, the `held` ones of them, a wait queue and `skipped` runs."""

    limit: int
    skips: bool
    max_waiting: int
    paused: bool = False
    active: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    wait_queue: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)

    def fire(self, name: str) -> None:
        """Fire an occurrence. Names of requested runs begin with p and do not pass here."""
        if self.paused or (len(self.active) >= self.limit and self.skips):
            self.skipped.add(name)
        elif len(self.active) < self.limit:
            self.active.append(name)
        elif (
            sum(not self._is_requested(waiting) for waiting in self.wait_queue) >= self.max_waiting
        ):
            self.skipped.add(name)
        else:
            self.wait_queue.append(name)

    def request_run(self, name: str) -> None:
        self.wait_queue.append(name)
        self._admit()

    def claim(self, name: str) -> bool:
        """Claim a run. Return False if it waits, is held or has ended."""
        if name not in self.active or name in self.held or len(self.held) >= self.limit:
            return False
        self.held.add(name)
        return True

    def end(self, name: str) -> None:
        self.active.remove(name)
        self.held.discard(name)
        self.ended.append(name)
        self._admit()

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        free = [name for name in self.active if name not in self.held]
        excess = max(0, len(self.active) - limit)
        self._requeue(free[-excess:] if excess else [])
        self._admit()

    def pause(self) -> None:
        self.paused = True
        self._requeue(
            [name for name in self.active if name not in self.held and not self._is_requested(name)]
        )
        self._admit()

    def resume(self) -> None:
        self.paused = False
        self._admit()

    def _requeue(self, names: list[str]) -> None:
        self.active = [name for name in self.active if name not in names]
        self.wait_queue = names + self.wait_queue

    def _admit(self) -> None:
        for name in list(self.wait_queue):
            if len(self.active) < self.limit and (not self.paused or self._is_requested(name)):
                self.wait_queue.remove(name)
                self.active.append(name)

    @staticmethod
    def _is_requested(name: str) -> bool:
        return name.startswith("p")
