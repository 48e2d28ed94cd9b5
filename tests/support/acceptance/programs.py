"""One program in four languages. Its first argument says what it does, and all four do the same."""

import io
import subprocess
import zipfile
from pathlib import Path

from tests.support.acceptance.contract import Json

LANGUAGES = ("python", "node", "bash", "binary")
BIG_BYTES = 200_000_000  # over the limit of a script with `memory_mb` 128

PYTHON = f"""
import os, signal, sys, time
mode = sys.argv[1]
if mode == "report":
    sys.stdout.write(sys.stdin.read())
    print(*sys.argv[2:], os.environ["MINE"], sep="|")
    for name in ("JOB_ID", "RUN_ID", "ATTEMPT", "SCHEDULED_TIME"):
        print(os.environ["PUNCTUAL_" + name])
    print("to the log", file=sys.stderr)
    sys.exit(3)
print("begun")
if mode == "memory":
    held = b"x" * {BIG_BYTES}
if mode == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(60)
"""

NODE = f"""
const [mode, ...words] = process.argv.slice(2)
if (mode === "report") {{
  process.stdout.write(require("fs").readFileSync(0, "utf8"))
  console.log([...words, process.env.MINE].join("|"))
  for (const name of ["JOB_ID", "RUN_ID", "ATTEMPT", "SCHEDULED_TIME"])
    console.log(process.env["PUNCTUAL_" + name])
  console.error("to the log")
  process.exit(3)
}}
console.log("begun")
const held = mode === "memory" ? Buffer.alloc({BIG_BYTES}, 1) : null
if (mode === "crash") process.kill(process.pid, "SIGSEGV")
setTimeout(() => held, 60_000)
"""

BASH = f"""
mode=$1; shift
if [ "$mode" = report ]; then
  cat
  IFS='|'; echo "$*|$MINE"
  printf '%s\\n' "$PUNCTUAL_JOB_ID" "$PUNCTUAL_RUN_ID" "$PUNCTUAL_ATTEMPT" \\
    "$PUNCTUAL_SCHEDULED_TIME"
  echo "to the log" >&2
  exit 3
fi
echo begun
if [ "$mode" = memory ]; then printf -v held '%{BIG_BYTES}s' x; fi
if [ "$mode" = crash ]; then kill -SEGV $$; fi
sleep 60
"""

C = f"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *names[] = {{"PUNCTUAL_JOB_ID", "PUNCTUAL_RUN_ID", "PUNCTUAL_ATTEMPT",
                              "PUNCTUAL_SCHEDULED_TIME"}};

static int fork_bomb(void) {{
    for (int number = 0; number < 400; number++)
        if (fork() == 0) pause();
    pause();
    return 0;
}}

int main(int count, char **words) {{
    const char *mode = words[1];
    if (strcmp(mode, "report") == 0) {{
        for (int byte; (byte = getchar()) != EOF;) putchar(byte);
        for (int word = 2; word < count; word++) printf("%s|", words[word]);
        puts(getenv("MINE"));
        for (int name = 0; name < 4; name++) puts(getenv(names[name]));
        fputs("to the log\\n", stderr);
        return 3;
    }}
    puts("begun");
    fflush(stdout);
    if (strcmp(mode, "fork-bomb") == 0) return fork_bomb();
    if (strcmp(mode, "memory") == 0) {{
        volatile char *held = malloc({BIG_BYTES});
        for (long byte = 0; byte < {BIG_BYTES}; byte += 1024) held[byte] = 1;
    }}
    if (strcmp(mode, "crash") == 0) raise(SIGSEGV);
    sleep(60);
    return 0;
}}
"""

ENTRIES = {"python": "main.py", "node": "main.js", "bash": "main.sh", "binary": "main"}
SOURCES = {"python": PYTHON, "node": NODE, "bash": BASH}


def compiled(folder: Path) -> bytes:
    """Return the binary that the C compiler of this machine builds."""
    (folder / "main.c").write_text(C)
    command = ["gcc", "-static", "-O1", "-o", "main", "main.c"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "main").read_bytes()


def zip_of(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def program_task(language: str, mode: str, artifact_id: str = "", **fields: Json) -> Json:
    """Return the task of a program: its source, or its artifact."""
    file = {"artifact_id": artifact_id} if artifact_id else {"code": SOURCES[language]}
    return {"type": "script", "runtime": language, "args": [mode], **file, **fields}
