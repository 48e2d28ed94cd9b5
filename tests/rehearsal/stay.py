"""`make rehearse STAY=1`: deploy to the emulator and stay up until Ctrl-C, for a person to try."""

import os
import shutil
import signal
import sys
from pathlib import Path

from tests.rehearsal.deployment import CONTEXT, Deployment, tell_api_address, wait_for_tick
from tests.rehearsal.emulator import FOLDER, ROOT, Account, emulator
from tests.rehearsal.progress import Failed, step
from tests.rehearsal.targets import put_targets

ENDING = {signal.SIGINT, signal.SIGTERM}
READY = """
The deployment is up. In another terminal, in this folder:

  export PATH="$PWD/.venv/bin:$PATH"
  export SSL_CERT_FILE={authority}
  export PUNCTUAL_URL={url}
  export PUNCTUAL_TOKEN="$(cat {token_file})"
  punctual jobs create hello --bash 'echo hello from $PUNCTUAL_RUN_ID'
  punctual runs watch hello
  punctual runs output hello

The API:        {url}
The admin token is in {token_file}
The certificate {authority} is the emulator's own. curl takes it with --cacert.

Ctrl-C stops the emulator and removes everything that it holds.
"""


def stay(folder: Path) -> None:
    """Deploy the stage, print how to reach it, and wait for a signal."""
    with emulator(folder, {}) as account:
        os.environ["PUNCTUAL_AUTHORITY"] = str(account.authority)
        deployment = Deployment(folder, account.environment, CONTEXT)
        with step("cdk bootstrap"):
            deployment.bootstrap()
        put_targets(account)
        with step("make deploy"):
            token = deployment.deploy()
        if token is None:
            raise Failed("the deploy made no admin token")
        url = tell_api_address(account)
        with step("the first tick"):
            wait_for_tick(url)
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        print(ready_text(account, url, write_token(folder, token)), flush=True)
        wait_for_signal()


def write_token(folder: Path, token: str) -> Path:
    """Write the token to a file that only its owner can read."""
    file = folder / "admin-token"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as output:
        output.write(f"{token}\n")
    return file


def ready_text(account: Account, url: str, token_file: Path) -> str:
    return READY.format(authority=_shown(account.authority), url=url, token_file=_shown(token_file))


def _shown(file: Path) -> str:
    """Return the path as a person in the project's folder types it."""
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def wait_for_signal() -> None:
    """Wait for Ctrl-C or SIGTERM, which must be blocked, so that neither interrupts the cleanup."""
    number = signal.sigwait(ENDING)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    print(f"\nStopping after {signal.Signals(number).name}.", file=sys.stderr, flush=True)


def main() -> int:
    folder = FOLDER / "stay"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        stay(folder)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)  # 350 MB of unpacked functions
    return 0


if __name__ == "__main__":
    sys.exit(main())
