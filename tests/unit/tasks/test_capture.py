from punctual.tasks.redaction import Redactor
from punctual.tasks.script.capture import Capture


class Log:
    def __init__(self) -> None:
        self.data = b""

    def log(self, data: bytes) -> None:
        assert data
        self.data += data


def test_secret_split_by_the_other_stream_is_redacted() -> None:
    log = Log()
    capture = Capture(log, Redactor(frozenset({"hush-hush"})))

    capture.stdout(b"a hush")
    capture.stderr(b"b hush-")
    capture.stdout(b"-hush c")
    capture.stderr(b"not")
    capture.end()

    assert capture.output == b"a [secret] c"
    assert capture.tail == "b hush-not"
    assert log.data == b"a b [secret] chush-not"


def test_capture_keeps_its_bounds_and_flags_what_was_truncated() -> None:
    log = Log()
    capture = Capture(log, Redactor(frozenset()), max_output=4, max_log=6)

    capture.stdout(b"abcd")
    assert not capture.output_truncated
    capture.stderr(b"ef")
    assert not capture.logs_truncated
    capture.stdout(b"g")

    assert (capture.output, capture.output_truncated) == (b"abcd", True)
    assert (log.data, capture.logs_truncated) == (b"abcdef", True)


def test_possible_start_of_a_secret_is_written_at_the_end() -> None:
    log = Log()
    capture = Capture(log, Redactor(frozenset({"hush"})))
    capture.stdout(b"hu")
    assert log.data == b""
    capture.end()
    assert (log.data, capture.output) == (b"hu", b"hu")
