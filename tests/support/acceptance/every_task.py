"""A job file with each task that a node knows, and its runs as they compare between installations.

The file stands in `jobs.yaml` of a folder, beside the artifacts that it names.
"""

import re
from pathlib import Path

from tests.support.acceptance.contract import Api, Json
from tests.support.acceptance.programs import BASH, compiled

VARYING = {
    re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"): "<id>",
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"): "<time>",
    re.compile(r"/[^\s\"':]+/run-[^/\s\"':]+"): "<run folder>",
    re.compile(r"127\.0\.0\.1:\d+"): "<target>",
    re.compile(r"(?<=sandbox may be the cause: ).*"): "<what scripts may open here>",
}
LARGE_CHARACTERS = 250_000  # of a payload, which may have 256 KiB
COMPARED = (
    *("status", "exit_code", "error_message", "http_status", "attempt_number", "reason"),
    *("output_truncated", "log_truncated", "output_discarded", "trigger"),
)

FILE = """\
set: SET
defaults:
  schedule_type: CRON
  cron_expression: 0 0 29 2 *
  max_retries: 0
  retry: {backoff_seconds: 0, jitter: false}
  payload: {"n": 7, "text": "a b/ü", "list": [1, null]}
jobs:
  - {name: event, task: {type: event, detail_type: "Night {{payload.n}}"}}
  - {name: event-by-default}
  - {name: event-discarded, output: discard, task: {type: event}}

  - {name: http, task: {type: http, url: "TARGET/echo/a?q={{payload.text}}", headers: {X-A: "1"}}}
  - name: http-body
    task: {type: http, url: TARGET/echo/b, method: PUT, body: ["{{payload.n}}", "{{attempt}}"]}
  - {name: http-not-found, max_retries: 3, task: {type: http, url: TARGET/404/c, method: GET}}
  - {name: http-expected, task: {type: http, url: TARGET/404/d, expect_status: [404]}}
  - {name: http-retried, max_retries: 2, task: {type: http, url: TARGET/503/200/e}}
  - {name: http-timeout, timeout_seconds: 1, task: {type: http, url: TARGET/wait/9s/f}}
  - {name: http-refused, task: {type: http, url: "http://127.0.0.1:1/"}}
  - {name: http-redirect, task: {type: http, url: TARGET/302/g, method: GET, follow_redirects: 1}}
  - {name: http-discarded, output: discard, task: {type: http, url: TARGET/echo/h}}
  - {name: http-no-key, max_retries: 3, task: {type: http, url: "TARGET/i?x={{payload.none}}"}}
  - {name: http-secret, task: {type: http, url: TARGET/echo/j, body: "say {{secret:SECRET}}"}}

  - name: python
    task:
      type: script
      runtime: python
      args: ["{{payload.text}}", "{{payload.list}}", "--n={{payload.n}}"]
      env: {N: "{{payload.n}}", MINE: x}
      code: |
        import json, os, sys
        print(json.load(sys.stdin), sys.argv[1:], os.environ["N"], os.environ["MINE"])
        print("err", file=sys.stderr)
        print(sorted(name for name in os.environ if not name.startswith("LC_")))
        print(os.environ["PUNCTUAL_RUN_ID"], os.environ["PUNCTUAL_SCHEDULED_TIME"])
  - name: node
    timeout_seconds: 25
    task:
      type: script
      runtime: node
      args: ["{{payload.text}}"]
      code: |
        console.log(require("fs").readFileSync(0, "utf8"), process.argv.slice(2))
        console.error("err"); process.exitCode = 5
  - name: bash
    timeout_seconds: 25
    task: {type: script, runtime: bash, args: [a, "b c"], code: 'cat; echo "$#" "$2"; pwd | wc -l'}
  - {name: folder, task: {type: script, runtime: python, artifact: report, args: [w]}}
  - {name: one-file, task: {type: script, runtime: bash, artifact: main.sh, args: [report, a]}}
  - {name: binary, task: {type: script, runtime: binary, artifact: main, args: [report, a],
     env: {MINE: "1"}}}
  - {name: binary-crash, task: {type: script, runtime: binary, artifact: main, args: [crash]}}
  - name: secret
    task:
      type: script
      runtime: bash
      env: {PASS: "{{secret:SECRET}}"}
      code: 'echo "${#PASS} $PASS"; echo $PASS | base64 >&2; exit 4'
  - {name: no-secret, max_retries: 2, task: {type: script, runtime: bash, code: "true",
     env: {PASS: "{{secret:SECRET-none}}"}}}
  - {name: no-key, max_retries: 2, task: {type: script, runtime: bash, code: "true",
     args: ["{{payload.none}}"]}}
  - {name: discarded, output: discard, task: {type: script, runtime: bash,
     code: "echo out; echo err >&2; exit 3"}}
  - {name: failing, max_retries: 1, task: {type: script, runtime: bash,
     code: "echo $PUNCTUAL_ATTEMPT; echo why >&2; exit 9"}}
  - {name: second-attempt, max_retries: 2, task: {type: script, runtime: bash,
     code: "echo $PUNCTUAL_ATTEMPT; test $PUNCTUAL_ATTEMPT = 2"}}
  - {name: at-most-once, delivery: AT_MOST_ONCE, task: {type: script, runtime: bash, code: exit 6}}
  - {name: timeout, timeout_seconds: 2, task: {type: script, runtime: bash,
     code: "echo begun; sleep 60"}}
  - {name: timeout-ignored, timeout_seconds: 1, task: {type: script, runtime: bash,
     code: "trap '' TERM; echo begun; while true; do sleep 1; done"}}
  - {name: killed, task: {type: script, runtime: bash, code: "kill -KILL $$"}}
  - {name: memory, task: {type: script, runtime: python, resources: {memory_mb: 64},
     code: "import time; held = b'x' * 150_000_000; time.sleep(60)"}}
  - {name: syntax-error, task: {type: script, runtime: python, code: "print("}}
  - {name: no-command, task: {type: script, runtime: bash, code: "no-such-command"}}
  - {name: denied, task: {type: script, runtime: bash, code: "echo x > /etc/punctual-test"}}
  - {name: bytes, task: {type: script, runtime: bash, code: "printf '\\\\000\\\\377\\\\n'"}}
  - {name: large, task: {type: script, runtime: bash, code: "yes line | head -n 600000"}}
  - {name: cut, task: {type: script, runtime: bash,
     code: "head -c 11000000 /dev/zero"}}
  - {name: errors-only, task: {type: script, runtime: bash,
     code: "yes error | head -n 3000 >&2; echo THE END >&2; exit 1"}}
  - {name: silent, task: {type: script, runtime: bash, code: "true"}}
  - {name: other-encoding, task: {type: script, runtime: bash,
     code: "printf 'caf\\\\351 a\\\\0b\\\\n' >&2; exit 1"}}
  - {name: held-output, timeout_seconds: 25, task: {type: script, runtime: bash,
     code: "sleep 600 & echo begun"}}
  - {name: closed-streams, task: {type: script, runtime: bash, code: "exec >&- 2>&-; exit 2"}}
  - {name: own-signal, task: {type: script, runtime: bash, code: "kill -TERM $$"}}
  - {name: high-code, task: {type: script, runtime: bash, code: "exit 255"}}
  - {name: lines, task: {type: script, runtime: bash, env: {A: "x\\ny"}, args: ["", "\\n"],
     code: 'printf "%s|" "$A" "$#" "$2"'}}
  - {name: secret-argument, task: {type: script, runtime: bash, args: ["-{{secret:SECRET}}-"],
     code: 'echo "$1"; echo "${1:0:9}"'}}
  - name: large-payload
    payload: ["LARGE"]
    task: {type: script, runtime: python, code: "import sys; print(len(sys.stdin.read()))"}
"""


def write_file(folder: Path, *, target_url: str, set_name: str, secret: str) -> None:
    """Write the file and its artifacts. The target counts the calls of each path."""
    (folder / "report").mkdir()
    (folder / "report/main.py").write_text("import sys, rows\nprint(rows.ROWS, sys.argv[1:])\n")
    (folder / "report/rows.py").write_text("ROWS = [1, 2]\n")
    (folder / "main.sh").write_text(BASH)
    (folder / "main").write_bytes(compiled(folder))
    text = FILE.replace("TARGET", target_url).replace("SECRET", secret)
    text = text.replace("LARGE", "x" * LARGE_CHARACTERS)
    (folder / "jobs.yaml").write_text(text.replace("set: SET", f"set: {set_name}"))


def comparable(api: Api, run: Json) -> Json:
    """Return what an ended run of the same job must equal in any other installation."""
    fields = {name: run.get(name) for name in COMPARED}
    fields["attempts"] = [
        (attempt["attempt_number"], attempt["status"], _plain(attempt["error_message"]))
        for attempt in run["attempts"]
    ]
    fields["error_message"] = _plain(fields["error_message"])
    headers = run.get("http_headers") or []
    fields["http_headers"] = [header for header in headers if "date" not in str(header).lower()]
    output = api.output(run) if run["output_url"] else None
    fields["output"] = None if output is None else _plain(output.decode("latin-1"))
    log = api.log(run).decode(errors="replace") if run["log_url"] else None
    fields["log"] = None if log is None else sorted(_plain(log).splitlines())
    return fields


def _plain(text: str | None) -> str:
    """Replace ids, times, folders, ports and advice, which differ from place to place."""
    for pattern, replacement in VARYING.items():
        text = pattern.sub(replacement, text or "")
    return text or ""
