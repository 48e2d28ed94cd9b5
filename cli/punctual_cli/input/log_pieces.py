"""The text of a log file in pieces, for the calls of a claim."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# A call takes 512 KiB of JSON, and JSON writes a control character as six.
LOG_PIECE_BYTES = 64 * 1024
MAX_LOG_BYTES = 10 * 1024 * 1024  # the server drops what is after them
_ONE_MARK_A_BYTE = "punctual-one-mark-a-byte"


class LogPiece(NamedTuple):
    """Text of a log, and the number of bytes before it."""

    offset: int
    text: str

    @property
    def end(self) -> int:
        return self.offset + len(self.text.encode())


def _mark_each_byte(error: UnicodeError) -> tuple[str, int]:
    """Replace invalid bytes by as many question marks, so that offsets stay those of the file."""
    assert isinstance(error, UnicodeDecodeError)
    return "?" * (error.end - error.start), error.end


codecs.register_error(_ONE_MARK_A_BYTE, _mark_each_byte)


def read_log_pieces(path: Path, offset: int, is_complete: bool) -> Iterator[LogPiece]:
    """Yield the text of the file from the offset on.

    A character that is cut at the end is left for the next call, unless the file is complete.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(_ONE_MARK_A_BYTE)
    with path.open("rb") as file:
        file.seek(offset)
        while offset <= MAX_LOG_BYTES and (data := file.read(LOG_PIECE_BYTES)):
            piece = LogPiece(offset, decoder.decode(data))
            offset = piece.end
            if piece.text:
                yield piece
    if is_complete and (text := decoder.decode(b"", final=True)):
        yield LogPiece(offset, text)
