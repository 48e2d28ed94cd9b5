"""`make rehearse STAY=1`: what it writes and prints, and how it ends."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rehearsal import stay
from tests.rehearsal.emulator import FOLDER, ROOT, Account
from tests.rehearsal.progress import Failed

WAIT = (
    "import signal; from tests.rehearsal import stay; "
    "signal.pthread_sigmask(signal.SIG_BLOCK, stay.ENDING); "
    "print('waiting', flush=True); stay.wait_for_signal(); print('in order')"
)


def test_rehearsal_stay_writes_the_token_for_its_owner_only(tmp_path: Path) -> None:
    file = stay.write_token(tmp_path, "pt_secret")
    assert file.read_text() == "pt_secret\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_rehearsal_stay_prints_paths_as_typed_in_the_project_folder() -> None:
    account = Account("https://127.0.0.1:4566", FOLDER / "stay/certificate.pem")
    text = stay.ready_text(account, "https://127.0.0.1:4566/v1", FOLDER / "stay/admin-token")
    assert "export PUNCTUAL_URL=https://127.0.0.1:4566/v1\n" in text
    assert "SSL_CERT_FILE=.rehearsal/stay/certificate.pem" in text
    assert 'export PUNCTUAL_TOKEN="$(cat .rehearsal/stay/admin-token)"' in text
    assert "login" not in text  # a stored login would outlive the emulator
    assert "pt_" not in text  # the token itself is not printed


@pytest.mark.parametrize(("failure", "is_kept"), [(None, False), (Failed("no token"), True)])
def test_rehearsal_stay_removes_its_folder_unless_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Failed | None, is_kept: bool
) -> None:
    def play(folder: Path) -> None:
        (folder / "deploy.log").write_text("")
        if failure is not None:
            raise failure

    monkeypatch.setattr(stay, "FOLDER", tmp_path)
    monkeypatch.setattr(stay, "stay", play)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert stay.main() == (0 if failure is None else 1)
    assert (tmp_path / "stay/deploy.log").exists() is is_kept


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_rehearsal_stay_ends_in_order_on_a_signal(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "in order\n")
