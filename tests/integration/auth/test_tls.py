"""Documents of an issuer come over TLS from the host of the certificate, in limited time."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socket import create_server

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from punctual.auth.https_fetch import fetch_document
from punctual.domain.errors import Unavailable
from punctual.node.clock import wall


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} for {self.headers['host']}".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a self-signed certificate of 127.0.0.1 with its key. OpenSSL uses the real clock."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.NameAttribute
    subject = x509.Name([name(NameOID.COMMON_NAME, "issuer")])
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate_data = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(wall() - timedelta(days=1))
        .not_valid_after(wall() + timedelta(days=1))
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "issuer.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate_data.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def port(certificate: Path) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    yield server.server_address[1]
    server.shutdown()
    serving.join()
    server.server_close()


def test_document_of_a_trusted_host_is_read(
    certificate: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    address = f"127.0.0.1:{port}"
    assert fetch_document(f"https://{address}/keys?v=1") == f"/keys?v=1 for {address}".encode()


def test_untrusted_certificate_is_an_outage(port: int) -> None:
    with pytest.raises(Unavailable, match="SSLCertVerificationError"):
        fetch_document(f"https://127.0.0.1:{port}/keys")


def test_certificate_of_another_host_is_an_outage(
    certificate: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(Unavailable, match="SSLCertVerificationError"):
        fetch_document(f"https://localhost:{port}/keys")


def test_endless_handshake_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts the connection, but no server answers."""
    monkeypatch.setattr("punctual.auth.https_fetch.FETCH_SECONDS", 0.2)
    with closing(create_server(("127.0.0.1", 0))) as silent, pytest.raises(Unavailable):
        fetch_document(f"https://127.0.0.1:{silent.getsockname()[1]}/keys")
