"""The real handlers of a stage under load. Each invocation is a process of the timeline."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from punctual.aws.clients import Clients
from punctual.aws.retries import RetryPolicy
from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import sortable_id
from punctual.lambdas.executor.attempt import RunningAttempt
from punctual.lambdas.executor.handler import ExecutorHandler
from punctual.lambdas.executor.threads import Work
from punctual.lambdas.planner.handler import build_handler as build_planner
from punctual.lambdas.poller.handler import PollerHandler
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.status.handler import build_handler as build_status
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from tests.support.deployed.drivers.telemetry import RecordedTelemetry
from tests.support.load.stage import (
    CALL_PROCESSOR_SECONDS,
    EXECUTOR,
    PLANNER,
    POLLER,
    STATUS,
    WAKE_QUEUE,
    LoadStage,
)
from tests.support.load.stream import INVOKE_DELAY, JobStream, Record
from tests.support.load.tables import Tables, Write
from tests.support.load.timeline import Pool, Timeline

THREADS = 16  # of a function
TASK_SECONDS = 0.2
POLLER_SECONDS, EXECUTOR_SECONDS = 300.0, 330.0  # of an invocation
QUEUE_DELAY = 0.05  # seconds from a message until its function runs, assumed
SEND_SECONDS = 0.01  # of a call of SQS or of the event bus, assumed
RECORD_PROCESSOR_SECONDS = 0.0005  # of a record of the stream, beside the calls, assumed


class LoadClients(Clients):
    """Clients of one environment."""

    def __init__(self, functions: "Functions", name: str) -> None:
        super().__init__()
        self._functions = functions
        self._name = name
        self._processor = CALL_PROCESSOR_SECONDS / functions.stage.processor_share(name)

    def _create(self, service: str, read_timeout: int = 3) -> Any:
        if service == "dynamodb":
            return self._functions.tables.client(self._processor, self._name)
        return _OtherServices(self._functions, self._processor)


class _OtherServices:
    """The calls of SQS, the event bus and SSM that this path makes."""

    def __init__(self, functions: "Functions", processor: float) -> None:
        self._functions = functions
        self._processor = processor

    def send_message_batch(self, QueueUrl: str, Entries: Sequence[Any]) -> Any:
        self._functions.timeline.spend(self._processor, SEND_SECONDS)
        self._functions.sent(QueueUrl, Entries)
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def put_events(self, Entries: Sequence[Any]) -> Any:
        self._functions.timeline.spend(self._processor, SEND_SECONDS)
        return {"FailedEntryCount": 0, "Entries": [{"EventId": "event"} for _ in Entries]}

    def get_parameters(self, Names: Sequence[str]) -> Any:
        values = {"shards": str(self._functions.stage.shards), "pace": "30", "dispatch": "on"}
        return {
            "Parameters": [{"Name": name, "Value": values[name.split("/")[-1]]} for name in Names]
        }


class _Context:
    def __init__(self, timeline: Timeline) -> None:
        self._ends = timeline.seconds + EXECUTOR_SECONDS
        self._timeline = timeline

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends - self._timeline.seconds) * 1000)


class _Tasks:
    """Runs the tasks of one invocation. Each attempt lasts a while; other work is done at once."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._started: list[tuple[float, Work]] = []

    def start(self, work: Work, /) -> None:
        if isinstance(work, RunningAttempt):
            self._started.append((self._timeline.seconds + TASK_SECONDS, work))
        else:
            work()

    def wait(self, seconds: float, /) -> None:
        until = self._timeline.seconds + seconds
        ends = min([until, *(ends for ends, _ in self._started)])
        self._timeline.pause(ends - self._timeline.seconds)
        ended = [work for ends, work in self._started if ends <= self._timeline.seconds + 1e-9]
        self._started = [started for started in self._started if started[1] not in ended]
        for work in ended:
            work()


class _Succeeds:
    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        return Outcome("SUCCESS")


class Functions:
    """The functions of a stage, with their queues and the stream."""

    def __init__(self, stage: LoadStage, timeline: Timeline, tables: Tables) -> None:
        self.stage = stage
        self.timeline = timeline
        self.tables = tables
        self.telemetry = RecordedTelemetry()
        self.stream = JobStream(timeline, stage, self._invoke_status)
        self.sent_runs = 0
        self.failed_batches = 0
        self.busy: defaultdict[str, int] = defaultdict(int)
        self.most_busy: defaultdict[str, int] = defaultdict(int)
        self._idle: defaultdict[str, list[Any]] = defaultdict(list)  # warm handlers by function
        self._numbers = count(1)

    def runtime(self, name: str) -> Runtime:
        stage, timeline = self.stage, self.timeline
        return Runtime(
            stage.settings(),
            self.telemetry,
            clients=LoadClients(self, name),
            clock=timeline,
            steady=timeline.monotonic,
            make_id=self._new_id,
            pause=timeline.pause,
            cpu_share=stage.processor_share(name),
            pool=Pool(timeline, THREADS),
            retry_policy=RetryPolicy(timeline.pause, seed=str(next(self._numbers))),
        )

    def tick(self) -> None:
        """Start the planner."""
        self._begin(PLANNER, self._new_planner, lambda planner: planner.tick())

    def sent(self, url: str, entries: Sequence[Any]) -> None:
        """Deliver messages to their function. Lambda takes up to ten of a FIFO queue at a time."""
        if url == WAKE_QUEUE:
            for entry in entries:
                event = {"Records": [{"messageId": "wake", "body": entry["MessageBody"]}]}
                self._begin(
                    POLLER, self._new_poller, _polling(event), entry["DelaySeconds"] + QUEUE_DELAY
                )
            return
        self.sent_runs += len(entries)
        records = [_message(url, entry) for entry in entries]

        def work(handler: ExecutorHandler) -> None:
            answer = handler.handle({"Records": records}, _Context(self.timeline))
            assert answer == {"batchItemFailures": []}

        self._begin(EXECUTOR, self._new_executor, work, QUEUE_DELAY)

    def _invoke_status(
        self, records: Sequence[Record], done: Callable[[BaseException | None], None]
    ) -> None:
        processor = RECORD_PROCESSOR_SECONDS / self.stage.processor_share(STATUS)

        def work(handler: Any) -> None:
            self.timeline.pause(processor * len(records))
            error: Unavailable | None = None
            try:
                assert handler.handle(records) == []
            except Unavailable as failure:
                error = failure
                self.failed_batches += 1
            done(error)

        self._begin(STATUS, lambda: build_status(self.runtime(STATUS)), work, INVOKE_DELAY)

    def _begin(
        self,
        name: str,
        build: Callable[[], Any],
        work: Callable[[Any], None],
        delay: float = 0.0,
    ) -> None:
        """Start an invocation in a warm environment, or in a new one."""

        def invoke() -> None:
            self.busy[name] += 1
            self.most_busy[name] = max(self.most_busy[name], self.busy[name])
            handler = self._idle[name].pop() if self._idle[name] else build()
            work(handler)
            self._idle[name].append(handler)
            self.busy[name] -= 1

        self.timeline.begin(self.timeline.seconds + delay, invoke)

    def _new_planner(self) -> Any:
        return build_planner(self.runtime(PLANNER))

    def _new_poller(self) -> PollerHandler:
        return PollerHandler(self.runtime(POLLER))

    def _new_executor(self) -> Any:
        tasks = AttemptRunner({"event": _Succeeds()})
        runtime = self.runtime(EXECUTOR)
        return ExecutorHandler(runtime, "quick", lambda _: tasks, _Tasks(self.timeline))

    def _new_id(self) -> str:
        return sortable_id(self.timeline(), (next(self._numbers) << 6).to_bytes(10, "big"))

    def written(self, table: str, write: Write) -> None:
        if table == "jobs" and "state" in (write.after or write.before or {}):
            self.stream.append(write)


def _polling(event: Any) -> Callable[[PollerHandler], None]:
    def work(handler: PollerHandler) -> None:
        answer = handler.handle(event, POLLER_SECONDS)
        assert answer == {"batchItemFailures": []}

    return work


def _message(url: str, entry: Any) -> Any:
    name = url.rsplit("/", 1)[-1]
    return {
        "messageId": entry["MessageDeduplicationId"],
        "receiptHandle": "handle",
        "body": entry["MessageBody"],
        "attributes": {"ApproximateReceiveCount": "1"},
        "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:{name}",
    }
