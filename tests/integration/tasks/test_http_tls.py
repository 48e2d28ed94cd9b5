"""HTTP tasks over TLS: certificates, handshakes and stops."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from punctual.tasks.contract import StopSignal
from tests.integration.tasks.test_http import (
    Handler,
    NoLog,
    Server,
    _header,
    _no_answer,
    an_attempt,
    answer,
    answers_with,
    call,
    running,
    serving,
)


def a_certificate(name: str, folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return file


@contextmanager
def serving_tls(folder: Path, handler: Handler) -> Iterator[tuple[Server, list[str | None], Any]]:
    file = a_certificate("job.test", folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server_names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: server_names.append(name)
    options = {
        "resolver": lambda *_: ["127.0.0.1"],
        "ssl_context": ssl.create_default_context(cafile=str(file)),
    }
    with serving(handler, context) as server:
        yield server, server_names, options


def test_tls_certificate_is_checked_against_the_host_name(tmp_path: Path) -> None:
    with serving_tls(tmp_path, answers_with(answer(body=b"x" * 500_000))) as (
        server,
        server_names,
        options,
    ):
        outcome = call(f"https://job.test.:{server.port}/", options=options, body="y" * 500_000)
        request = server.request()
    assert (outcome.status, len(outcome.output)) == ("SUCCESS", 500_000)
    assert request.endswith(b"y" * 500_000)
    assert _header(request, b"host") == f"job.test:{server.port}".encode()
    assert server_names == ["job.test"]


def test_certificate_of_another_host_is_refused(tmp_path: Path) -> None:
    with serving_tls(tmp_path, answers_with(answer())) as (server, _, options):
        outcome = call(f"https://other.test:{server.port}/", options=options)
        assert server.requests.empty()
    assert outcome.status == "FAILED"
    assert "the certificate is not valid" in outcome.error


def test_tls_handshake_without_answer_ends_at_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        outcome = call(f"https://127.0.0.1:{silent_server.getsockname()[1]}/", seconds=0.3)
    assert outcome.status == "TIMED_OUT"


def test_stop_request_ends_a_slow_answer_over_tls(tmp_path: Path) -> None:
    stop = StopSignal()

    def stopping(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        stop.request_stop("CANCEL")
        _no_answer(connection, request)

    with (
        serving_tls(tmp_path, stopping) as (server, _, options),
        running(**options) as attempt_runner,
    ):
        attempt = an_attempt(f"https://job.test:{server.port}/")
        outcome = attempt_runner.run(attempt, stop, NoLog())
    assert outcome.status == "CANCELLED"
