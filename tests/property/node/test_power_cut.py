"""Files of the node after a power cut at any call are readable and hold the durable data."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.node.files.blobs import FileBlobs
from punctual.node.files.durable import make_folder
from punctual.node.files.process_groups import GroupFiles
from punctual.node.files.secret_key import SECRET_KEY_FILE, SecretCipher
from punctual.node.files.token_key import TokenKey
from punctual.node.files.webhook_keys import WebhookKeys
from punctual.tasks.script.process_group import ProcessGroup
from punctual_cli import profiles
from tests.support.power_cut import Cut, a_disk

DEAD_GROUP = ProcessGroup(pid=2**22 + 1, pgid=2**22 + 1, start_time=1)  # no process has this number
DATA = st.binary(min_size=1, max_size=40)
NAMES = st.sampled_from(["a", "b", *(f"outputs/t/{path}" for path in ("j/r/1", "j/r/2", "j/s/1"))])


class Writer:
    """A writer that does what the node does to its files, and records what must be durable.

    A promise is the set of contents that a blob, log or key may have. None stands for no file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.promised: dict[str, frozenset[bytes | None]] = {}

    def begin(self) -> None:
        make_folder(self.folder)
        self.blobs = FileBlobs(self.folder / "blobs")
        self.groups = GroupFiles(self.folder / "groups")

    def put(self, name: str, data: bytes) -> None:
        self._write(name, data, lambda: self.blobs.put(name, data, "text/plain"))

    def log(self, name: str, data: bytes) -> None:
        path = f"log {name}"
        before = self.promised.get(path, frozenset([None]))
        whole = b"".join(part for part in before if part is not None) + data
        self.promised[path] = frozenset([*before, whole, b""])
        file = self.blobs.open_log(path)
        file.write(data)
        file.end()
        self.promised[path] = frozenset([whole])

    def draw_key(self) -> None:
        key = TokenKey(self.folder).read()
        self.promised["token.key"] = frozenset([key])

    def encrypt(self) -> None:
        cipher = SecretCipher(self.folder)
        cipher.encrypt("local", "bank", "hush")
        self.promised[SECRET_KEY_FILE] = frozenset([cipher.load()])

    def rotate(self) -> None:
        keys = WebhookKeys(self.folder)
        before = keys.secrets("local")
        self.promised["webhook.key"] = frozenset(before)
        keys.rotate()
        self.promised["webhook.key"] = frozenset(keys.secrets("local"))

    def start_group(self, name: str) -> None:
        self.groups.on_started(name, DEAD_GROUP)

    def end_group(self, name: str) -> None:
        self.groups.on_ended(name, DEAD_GROUP)

    def login(self, name: str) -> None:
        profiles.save_profile(self.folder / "config.json", name, "https://a/v1", "token")
        self.promised["profiles"] = self.promised.get("profiles", frozenset()) | {name.encode()}

    def _write(self, name: str, data: bytes, write: Callable[[], None]) -> None:
        before = self.promised.get(name, frozenset([None]))
        self.promised[name] = before | {data}
        write()
        self.promised[name] = frozenset([data])


def check(cut: Cut) -> None:
    """Start on the files after the cut: all are readable and hold the promised contents."""
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _handle: None)  # the checks need no sync
        folder = cut.lay_out(Path(top)) / "data"
        promised: dict[str, frozenset[bytes | None]] = dict(cut.promised)
        if not folder.exists():
            assert not promised
            return
        make_folder(folder)
        assert GroupFiles(folder / "groups").end_all().unreadable_run_ids == []
        names = {name.encode() for name in profiles.read_profiles(folder / "config.json")}
        assert names >= promised.pop("profiles", frozenset())
        key = TokenKey(folder).read()
        assert key in promised.pop("token.key", frozenset([key]))
        if SECRET_KEY_FILE in promised:
            assert SecretCipher(folder).load() in promised.pop(SECRET_KEY_FILE)
        secrets = WebhookKeys(folder).secrets("local")
        assert set(secrets) & (promised.pop("webhook.key", frozenset(secrets)))
        blobs = FileBlobs(folder / "blobs")
        for name, contents in promised.items():
            assert blobs.get(name) in contents, name


STEP = st.one_of(
    st.builds(lambda name, data: partial(Writer.put, name=name, data=data), NAMES, DATA),
    st.builds(
        lambda name, data: partial(Writer.log, name=name, data=data), st.sampled_from("ab"), DATA
    ),
    st.builds(lambda name: partial(Writer.start_group, name=name), st.sampled_from("12")),
    st.builds(lambda name: partial(Writer.end_group, name=name), st.sampled_from("12")),
    st.builds(lambda name: partial(Writer.login, name=name), st.sampled_from("xy")),
    st.just(Writer.draw_key),
    st.just(Writer.encrypt),
    st.just(Writer.rotate),
)


@given(st.lists(STEP, max_size=6))
def test_files_after_a_power_cut_are_whole_and_hold_durable_data(
    steps: list[Callable[[Writer], None]],
) -> None:
    with tempfile.TemporaryDirectory() as top:
        writer = Writer(Path(top) / "data")
        with a_disk(Path(top), lambda: dict(writer.promised)) as disk:
            writer.begin()
            for step in steps:
                step(writer)
    checked = set()
    for cut in disk.cuts:
        state = (cut.files, tuple(sorted(cut.promised.items())))
        if state not in checked:
            checked.add(state)
            check(cut)


def test_simulated_disk_loses_data_that_is_not_synced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with a_disk(tmp_path, dict) as disk:
        path.touch()
        with path.open("r+b") as file:
            file.write(b"1")
    by_name, without_name = disk.cuts[-1].files, disk.cuts[-2].files
    assert by_name == (("a", b""),)
    assert without_name == ()
