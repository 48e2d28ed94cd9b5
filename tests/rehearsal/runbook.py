"""The commands of docs/runbook.md."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import jmespath  # type: ignore[import-untyped]
from botocore import xform_name

from tests.rehearsal.emulator import ROOT, Account
from tests.rehearsal.progress import Failed, run

PAGE = ROOT / "docs/runbook.md"
SHOWN = re.compile(r"^ *(✅|❌)|: (deploying|destroying)|restored?\b|is complete|walked over")


def printed(section: str) -> list[str]:
    """Return the commands of a section."""
    _, _, page_end = PAGE.read_text().partition(f"\n## {section}\n")
    blocks = re.findall(
        r"^```sh\n(.*?)```", page_end.partition("\n## ")[0], re.DOTALL | re.MULTILINE
    )
    return [line for block in blocks for line in block.splitlines() if line]


class Person:
    """A shell in a checkout. boto3 replaces `aws`, because no lock file pins that program."""

    def __init__(self, account: Account, tree: Path, log: Path, variables: Mapping[str, str]):
        self._account = account
        self._tree = tree
        self._log = log
        self._variables = dict(variables)

    def types(self, line: str) -> str:
        code, output = self.tries(line)
        if code:
            raise Failed(f"`{line}` failed with {code}:\n{output[-3_000:]}")
        return output

    def is_refused(self, line: str, *why: str) -> str:
        code, output = self.tries(line)
        missing = [part for part in why if part not in output]
        if not code or missing:
            raise Failed(f"`{line}` ended with {code}, without {missing}:\n{output[-3_000:]}")
        return output

    def tries(self, line: str) -> tuple[int, str]:
        print(f"   $ {line}", flush=True)
        if line.lstrip().startswith("aws "):
            return 0, aws(self._account, shlex.split(Template(line).substitute(self._variables)))
        inherited = self._account.environment.items()
        environment = {
            # The `make` below must not inherit the options of `make rehearse`.
            **{name: value for name, value in inherited if not name.startswith(("MAKE", "MFLAGS"))},
            **self._variables,
            "PYTHONPATH": f"{self._tree}:{self._tree / 'layers/core/python'}",
        }
        return run(
            ["sh", "-c", line],
            environment,
            self._log,
            lambda output: bool(SHOWN.search(output)),
            self._tree,
        )

    def exports(self, line: str, value: str) -> None:
        """Set the variable that `line` exports to a value of this account."""
        name = line.removeprefix("export ").partition("=")[0]
        self._variables[name] = value


def aws(account: Account, words: Sequence[str]) -> str:
    """Answer as the AWS command line does, `aws SERVICE COMMAND --option value …`, in text."""
    _, service, command, *options = words
    client = account.client(service)
    method = command.replace("-", "_")
    name = client.meta.method_to_api_mapping[method]
    shape = client.meta.service_model.operation_model(name).input_shape
    members = {
        xform_name(member_name, "-"): (member_name, kind)
        for member_name, kind in shape.members.items()
    }
    params: dict[str, Any] = {}
    query = "@"
    remaining = iter(options)
    for option in remaining:
        plain = option.removeprefix("--")
        if plain in ("query", "output"):
            value = next(remaining)
            query = value if plain == "query" else query
            continue
        member, kind = members[plain.removeprefix("no-")]
        if kind.type_name == "boolean":
            params[member] = not plain.startswith("no-")
        else:
            params[member] = [next(remaining)] if kind.type_name == "list" else next(remaining)
    return in_text(jmespath.search(query, getattr(client, method)(**params)))


def in_text(result: Any) -> str:
    r"""
    >>> in_text([["a", "b"], ["c", None]])
    'a\tb\nc\tNone\n'
    """
    rows = result if isinstance(result, list) else [result]
    lines = ["\t".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows]
    return "".join(f"{line}\n" for line in lines)
