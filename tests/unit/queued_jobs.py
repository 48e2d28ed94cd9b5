"""Jobs as the store says that they are queued, and how often it was asked."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence

from punctual.engine.ports.rows import Key
from punctual.engine.ports.run_queue import Message
from punctual.node.run_queue.slots import MIXED, Place, kind_of, rank
from punctual.node.sqlite.codec import micros


class QueuedJobs:
    def __init__(self) -> None:
        self._jobs: dict[Key, list[Message]] = {}
        self._keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self._runs: dict[str, Key] = {}
        self._sorted: dict[int, list[Place]] | None = None
        self.asked = 0
        self.read = 0

    def __len__(self) -> int:
        return len(self._runs)

    def put(self, messages: Iterable[Message]) -> None:
        for one in messages:
            key = Key(one.tenant, one.job_id)
            if key not in self._numbers:
                self._numbers[key] = len(self._keys)
                self._keys.append(key)
            self._jobs.setdefault(key, []).append(one)
            self._runs[one.run_id] = key
        self._sorted = None

    def take(self, run_ids: Iterable[str]) -> None:
        """They are queued no more."""
        for run_id in run_ids:
            key = self._runs.pop(run_id)
            left = [one for one in self._jobs.pop(key) if one.run_id != run_id]
            if left:
                self._jobs[key] = left
            self._sorted = None

    def queued(self) -> list[Message]:
        return [one for messages in self._jobs.values() for one in messages]

    def is_queued(self, run_id: str) -> bool:
        return run_id in self._runs

    def places(self, wanted: int, after: Place | None, most: int, /) -> list[Place]:
        self.asked += 1
        if self._sorted is None:
            self._sorted = {}
            for key, messages in self._jobs.items():
                ranks = {rank(one.priority, _kind(one)) for one in messages}
                due = min(micros(one.due_at) for one in messages)
                place = (due, key.tenant, self._numbers[key])
                self._sorted.setdefault(ranks.pop() if len(ranks) == 1 else MIXED, []).append(place)
            for places in self._sorted.values():
                places.sort()
        found = self._sorted.get(wanted, [])
        return found[0 if after is None else bisect_right(found, after) :][:most]

    def keys(self, places: Sequence[Place], /) -> list[Key]:
        return [self._keys[number] for *_, number in places]

    def messages(self, keys: Collection[Key], /) -> list[Message]:
        self.read += len(keys)
        return [one for key in keys for one in self._jobs.get(key, ())]


def _kind(message: Message) -> str:
    return kind_of(message.task_type, message.lane)
