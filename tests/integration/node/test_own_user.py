"""Without tokens the node accepts its own user, and callers with the local token."""

import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from punctual.client.calls.transport import read_local_token
from punctual.node.files.data_folder import StoreError
from punctual.node.http.own_user import (
    LOCAL_TOKEN_FILE,
    Address,
    OwnUser,
    Peers,
    find_owner_in_table,
    load_local_token,
)
from punctual.web.http.problems import RequestRejected

TOKEN = "t" * 43
ME, OTHER, ROOT = 1_000, 1_001, 0
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux names a socket's user")


@pytest.fixture
def own_user() -> OwnUser:
    return OwnUser(lambda _client, _server: None, TOKEN, ME)


def is_admitted(
    own_user: OwnUser, uid: int | None, *tokens: bytes, path: bytes = b"/v1/jobs"
) -> bool:
    headers = [(b"host", b"localhost"), *((b"authorization", token) for token in tokens)]
    try:
        caller = own_user.authenticate(path, headers, "127.0.0.1", uid)
    except RequestRejected as error:
        rejection = error
    else:
        assert (caller.tenant, caller.address) in (("local", "127.0.0.1"), ("", "127.0.0.1"))
        return True
    assert rejection.http_code == "UNAUTHENTICATED"
    assert LOCAL_TOKEN_FILE in rejection.message
    return False


def test_own_user_needs_no_token(own_user: OwnUser) -> None:
    assert is_admitted(own_user, ME)
    assert is_admitted(own_user, ME, b"Bearer something")


@pytest.mark.parametrize("uid", [OTHER, ROOT, None])
def test_other_users_need_the_local_token(own_user: OwnUser, uid: int | None) -> None:
    good = b"Bearer " + TOKEN.encode()
    assert is_admitted(own_user, uid, good)
    for tokens in (
        (),
        (b"Bearer x",),
        (b"Basic " + TOKEN.encode(),),
        (good, good),
        (b"Bearer \xff",),
    ):
        assert not is_admitted(own_user, uid, *tokens)
    assert is_admitted(own_user, uid, path=b"/v1/health")
    assert is_admitted(own_user, uid, path=b"/v1/openapi.json")


def test_local_token_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    token = load_local_token(tmp_path)
    assert len(token) >= 32
    assert load_local_token(tmp_path) == token
    assert stat.S_IMODE((tmp_path / LOCAL_TOKEN_FILE).stat().st_mode) == 0o600
    (tmp_path / LOCAL_TOKEN_FILE).write_text("")
    with pytest.raises(StoreError, match="too short"):
        load_local_token(tmp_path)


def test_client_sends_the_local_token_where_sockets_have_no_user(tmp_path: Path) -> None:
    env = {"PUNCTUAL_DATA": str(tmp_path)}
    local_url, remote_url = "http://127.0.0.1:8080/v1", "https://punctual.example/v1"
    assert read_local_token(local_url, env, "darwin") is None
    token = load_local_token(tmp_path)
    assert read_local_token(local_url, env, "darwin") == token
    assert read_local_token(remote_url, env, "darwin") is None
    assert read_local_token(local_url, env, "linux") is None


@contextmanager
def a_connection() -> Iterator[tuple[socket.socket, socket.socket, Address]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server: Address = listener.getsockname()
        with socket.create_connection(server) as client:
            accepted, _ = listener.accept()
            with accepted:
                yield client, accepted, server


@linux
def test_owner_of_a_socket_is_found() -> None:
    peers = Peers()
    try:
        with a_connection() as (client, _, server):
            address: Address = client.getsockname()
            assert peers.find_owner(address, server) == os.geteuid()
            assert peers.find_owner(("127.0.0.1", 1), server) is None
            table = Path("/proc/net/tcp").read_text()
            assert find_owner_in_table(table, address, server) == os.geteuid()
            peers.close()  # from here on `find_owner` reads the table
            assert peers.find_owner(address, server) == os.geteuid()
    finally:
        peers.close()


@linux
@pytest.mark.parametrize("by_table", [False, True])
def test_closed_socket_has_no_owner(by_table: bool) -> None:
    peers = Peers()
    try:
        if by_table:
            peers.close()
        with a_connection() as (client, _, server):
            address: Address = client.getsockname()
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.close()
            assert peers.find_owner(address, server) is None
    finally:
        peers.close()
