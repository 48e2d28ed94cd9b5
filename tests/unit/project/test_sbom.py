"""A bill of materials that differs from its lock fails `make sbom`."""

import json
from pathlib import Path

import pytest

from requirements.check_sbom import main

LOCK = "annotated-types==0.8.0 \\\n    --hash=sha256:00\npyyaml==6.0.3 \\\n    --hash=sha256:11\n"
LICENCES = [{"license": {"id": "MIT"}}]


def component(name: str, version: str, **fields: object) -> dict[str, object]:
    return {"name": name, "version": version, "licenses": LICENCES, **fields}


COMPLETE = [component("annotated_types", "0.8.0"), component("PyYAML", "6.0.3")]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (COMPLETE, ""),
        (COMPLETE[:1], "pyyaml 6.0.3 is in the lock only"),
        ([*COMPLETE, component("pip", "23.2")], "pip 23.2 is in the bill only"),
        ([COMPLETE[0], component("PyYAML", "6.0.2")], "pyyaml 6.0.2 is in the bill only"),
        ([COMPLETE[0], component("PyYAML", "6.0.3", licenses=[])], "PyYAML has no licence"),
    ],
)
def test_bill_must_name_the_packages_of_the_lock(
    parts: list[dict[str, object]],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bill, lock = tmp_path / "bill.json", tmp_path / "lock.txt"
    bill.write_text(json.dumps({"components": parts}))
    lock.write_text(LOCK)
    assert main(str(bill), str(lock)) == (1 if message else 0)
    assert message in capsys.readouterr().err
