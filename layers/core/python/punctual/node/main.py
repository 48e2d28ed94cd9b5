"""`make run`: the scheduler on the loopback interface, in the foreground, until Ctrl-C."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn
import uvloop

from punctual.auth.claim_tokens import ClaimTokens
from punctual.auth.issuer_config import IssuerConfig, IssuerConfigError
from punctual.domain.errors import PunctualError
from punctual.domain.job_state import Lane
from punctual.domain.tenants.limits import UNLIMITED, TenantLimits
from punctual.engine.commands.failures import FailureCommands
from punctual.engine.commands.secrets import Secrets
from punctual.engine.commands.tokens import Tokens, WebhookSecretReader
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.queries.artifacts import ArtifactQueries
from punctual.engine.quotas.limits import LimitsCache, unlimited
from punctual.identity import new_id
from punctual.node import clock
from punctual.node.event_loop import EventLoop
from punctual.node.features import features_with
from punctual.node.files.artifacts import ArtifactFiles
from punctual.node.files.data_folder import DATABASE
from punctual.node.files.database_check import DatabaseCheck
from punctual.node.files.process_groups import GroupFiles
from punctual.node.files.webhook_keys import WebhookKeys
from punctual.node.http.access import (
    Keys,
    check_keys,
    own_user_access,
    token_access,
    token_commands,
)
from punctual.node.http.application import Application, build_application, node_services
from punctual.node.http.authentication import IssuerThread
from punctual.node.http.change_waits import ChangeWaits
from punctual.node.http.claims import node_claims
from punctual.node.http.descriptors import max_connections_within, min_file_limit, raise_file_limit
from punctual.node.http.protocol import (
    IDLE_CONNECTION_SECONDS,
    MAX_CONNECTIONS,
    SWEEP_SECONDS,
    HttpProtocol,
    expire_connections,
)
from punctual.node.http.uploads import Uploads
from punctual.node.limits_config import LIMITS_FILE, LimitsFile, defaults_from
from punctual.node.logs import EventLog, set_up_logging
from punctual.node.node import Node
from punctual.node.script_memory import default_total_mb
from punctual.node.script_settings import ScriptSettings, hide_this_process, script_task
from punctual.node.sqlite.store import Store
from punctual.node.stopping import STOP_SECONDS, Countdown, Stop, shut_down
from punctual.node.webhooks import MAX_CONCURRENT_WEBHOOKS
from punctual.node.workers import Workers
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.http.addresses import LOOPBACK_NETWORKS
from punctual.tasks.http.task import HttpTask
from punctual.tasks.script.run_folder import remove_leftovers
from punctual.tasks.script.sandbox import Sandbox
from punctual.web.features import Features
from punctual.web.services import Services
from punctual.web.views.system import Login

QUICK_WORKERS = 32
LONG_WORKERS = 8
MAX_STOP_SECONDS = 86_400
HOST = "127.0.0.1"
DEFAULT_PORT = 8080
DEFAULT_ADDRESS = f"http://{HOST}:{DEFAULT_PORT}/v1"


class StartRefused(PunctualError):
    """The node cannot start. The message is the one line to show."""


@dataclass(frozen=True)
class Options:
    port: int
    data: Path
    limits: TenantLimits = UNLIMITED
    auth: bool = False
    issuer_config: IssuerConfig | None = None
    stop_seconds: float = STOP_SECONDS
    scripts: ScriptSettings = field(default_factory=ScriptSettings)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Options":
        port_text = env.get("PUNCTUAL_PORT") or str(DEFAULT_PORT)
        if not port_text.isdecimal() or not 0 <= int(port_text) <= 65_535:
            raise StartRefused(f"PUNCTUAL_PORT must be a port from 0 to 65535, not {port_text!r}.")
        data = Path(env.get("PUNCTUAL_DATA") or ".punctual")
        auth = env.get("PUNCTUAL_AUTH") or "off"
        if auth not in ("on", "off"):
            raise StartRefused(f"PUNCTUAL_AUTH must be on or off, not {auth!r}.")
        try:
            issuer_config = IssuerConfig.from_env(env)
        except IssuerConfigError as error:
            raise StartRefused(f"{error}.") from error
        if issuer_config is not None and auth == "off":
            raise StartRefused("PUNCTUAL_OIDC_ISSUER needs PUNCTUAL_AUTH=on.")
        stop_text = env.get("PUNCTUAL_STOP_SECONDS") or f"{STOP_SECONDS:g}"
        if not stop_text.isdecimal() or int(stop_text) > MAX_STOP_SECONDS:
            raise StartRefused(
                f"PUNCTUAL_STOP_SECONDS must be 0 to {MAX_STOP_SECONDS}, in whole seconds; "
                f"got {stop_text!r}."
            )
        scripts = ScriptSettings.from_env(env, data)
        limits, stop_seconds = defaults_from(env), int(stop_text)
        return cls(int(port_text), data, limits, auth == "on", issuer_config, stop_seconds, scripts)


def listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise StartRefused(
            f"Port {port} on {HOST} cannot be used ({error.strerror}): stop what uses it, or "
            "set PUNCTUAL_PORT to another port."
        ) from error
    listener.listen(1_024)
    return listener


def load_limits(options: Options, log: EventLog) -> LimitsOf | None:
    """Return the limits by tenant, or None if no limit is configured.

    With None, no call looks up limits.
    """
    path = options.data / LIMITS_FILE
    if options.limits == UNLIMITED and not path.exists():
        return None
    overrides = LimitsFile(path)
    overrides.check()
    return LimitsCache(options.limits, overrides, clock.wall, log).limits_of


def build_node(
    store: Store,
    folder: Path,
    log: EventLog,
    wake: Any,
    sandbox: Sandbox,
    limits_of: LimitsOf | None = None,
    script_memory_mb: int = sys.maxsize,
) -> tuple[Node, HttpTask]:
    groups = GroupFiles(folder / "groups")
    http = HttpTask(monotonic=clock.monotonic, open_networks=LOOPBACK_NETWORKS)
    artifact_queries = ArtifactQueries(store.artifacts, store.blobs, store.job_states)
    artifact_files = ArtifactFiles(artifact_queries, store.blobs)
    script = script_task(folder, groups, sandbox, artifact_files, total_memory_mb=script_memory_mb)
    node = Node(
        store,
        AttemptRunner({"http": http, "script": script}, store.find_secret),
        groups,
        clock.wall,
        clock.monotonic,
        new_id(clock.wall),
        log,
        {Lane.QUICK: Workers("quick", QUICK_WORKERS), Lane.LONG: Workers("long", LONG_WORKERS)},
        wake,
        executor_id=f"{socket.gethostname()}-{os.getpid()}",
        limits_of=limits_of,
        webhook_secrets=WebhookKeys(folder).secrets,
        artifact_files=artifact_files,
        script_memory_mb=script_memory_mb,
    )
    return node, http


def find_max_connections(log: EventLog) -> int:
    """Return how many connections may be open. Runs keep the descriptors that they need."""
    file_limit, max_runs = (
        raise_file_limit(),
        QUICK_WORKERS + LONG_WORKERS + MAX_CONCURRENT_WEBHOOKS,
    )
    connections = max_connections_within(file_limit, max_runs)
    if not connections:
        raise StartRefused(
            f"The node needs {min_file_limit(max_runs)} open files and may have {file_limit}: "
            "raise the limit, as with `ulimit -n`."
        )
    if connections < MAX_CONNECTIONS:
        log("few_connections", connections=connections, open_files=file_limit)
    return connections


def _services(
    store: Store,
    node: Node,
    keys: Keys,
    tokens: Tokens,
    options: Options,
    features: Features,
    sandbox: Sandbox,
    limits_of: LimitsOf | None,
    log: EventLog,
) -> Services:
    """Return what the routes of this node call."""
    issuer_config = options.issuer_config
    return node_services(
        node.jobs,
        node.search,
        tokens,
        quotas=node.quotas if limits_of else None,
        limits_of=limits_of or unlimited,
        webhook_secret=WebhookSecretReader(keys.webhooks.display_secret, store.audit).read,
        secrets=Secrets(store.secrets, store.audit),
        features=features,
        sandbox=sandbox.name,
        login=issuer_config and Login(issuer_config.issuer, issuer_config.client_id),
        claims=node_claims(store, node.executor, ClaimTokens(keys.token.read), clock.wall, log),
        artifacts=node.artifacts,
        failures=FailureCommands(store.failures, store.job_states, store.audit),
        operations=node.operations,
    )


async def serve(
    store: Store, options: Options, listener: socket.socket, connections: int, log: EventLog
) -> None:
    """Run the node and its API until a signal, or the loss of the database, stops them."""
    event_loops: list[EventLoop] = []
    keys = check_keys(store, options.data, options.auth)
    limits_of, issuer_config = load_limits(options, log), options.issuer_config
    sandbox = options.scripts.choose_sandbox(options.data, options.auth, log)
    memory_mb = options.scripts.memory_mb or default_total_mb()
    features = features_with(sandbox, memory_mb)
    node, http = build_node(
        store, options.data, log, lambda: event_loops[0].wake(), sandbox, limits_of, memory_mb
    )
    node.start()
    tokens, issuer_thread = token_commands(store, keys.token), IssuerThread()
    access = (
        token_access(store, options.data, keys, tokens, issuer_config, issuer_thread, log)
        if options.auth
        else own_user_access(options.data)
    )
    remove_leftovers(options.data / "work")
    uploads = Uploads(store.blobs)
    event_loop = EventLoop(node, clock.monotonic, log)
    event_loops.append(event_loop)
    change_waits = ChangeWaits()
    store.changes.on_change = change_waits.on_change
    application = build_application(
        _services(store, node, keys, tokens, options, features, sandbox, limits_of, log),
        event_loop.turn,
        log,
        authenticator=access.authenticator,
        own_user=access.own_user,
        uploads=uploads,
        change_waits=change_waits,
    )
    stop = _stop_on_signals()
    store.database.on_lost = stop.fail
    tune_garbage_collector()
    event_loop.start()
    database_check = DatabaseCheck(options.data / DATABASE, store.damage, log)
    database_check.start()
    server = _http_server(application, connections)
    serving_task = asyncio.create_task(_serve_http(server, listener))
    print_welcome(options, listener.getsockname()[1], log)
    await _wait_and_stop(node, event_loop, stop, options.stop_seconds, log)
    change_waits.close()
    server.should_exit = True
    await serving_task
    for part in (http, uploads, issuer_thread):
        part.close()
    database_check.stop()
    log("stopped")
    if stop.error is not None:
        raise stop.error


def _stop_on_signals() -> Stop:
    """Return a stop that Ctrl-C and SIGTERM request."""
    stop, asyncio_loop = Stop(), asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio_loop.add_signal_handler(signal_number, stop.request)
    return stop


async def _wait_and_stop(
    node: Node, event_loop: EventLoop, stop: Stop, stop_seconds: float, log: EventLog
) -> None:
    """Wait for the stop. Then let the active runs end, for this long, and stop the event loop."""
    await stop.requested.wait()
    countdown = Countdown(sys.stderr if sys.stderr.isatty() else None, log)
    job_names = node.running_tasks.job_names
    await shut_down(
        node, job_names, event_loop.wake, stop, stop_seconds, countdown, clock.monotonic
    )
    event_loop.stop()


def _http_server(application: Application, connections: int) -> uvicorn.Server:
    """Return the server of the application, for at most this number of connections."""
    return uvicorn.Server(
        uvicorn.Config(
            application,
            http=cast(type[asyncio.Protocol], partial(HttpProtocol, max_connections=connections)),
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            timeout_keep_alive=IDLE_CONNECTION_SECONDS,
            timeout_graceful_shutdown=2,
            backlog=1_024,
        )
    )


async def _serve_http(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve without uvicorn's signal handling. The node decides when all is written."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    sweep_task = asyncio.create_task(_sweep_connections(server))
    await server.main_loop()
    sweep_task.cancel()
    await server.shutdown(sockets=[listener])


async def _sweep_connections(server: uvicorn.Server) -> None:
    """End the connections of clients that exceed a deadline."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        expire_connections(server.server_state.connections, loop.time())


def print_welcome(options: Options, port: int, log: EventLog) -> None:
    address = f"http://{HOST}:{port}/v1"
    log("ready", address=address, data=str(options.data.absolute()))
    if not sys.stdout.isatty():
        print(f"Punctual is ready at {address}", flush=True)
        return
    print(
        f"\nPunctual is ready at {address}\nIts data is in {options.data.absolute()}\n\n"
        "A first job, in another terminal:\n",
        *first_job_commands(address, options.auth),
        sep="\n  ",
        end="\n\n",
        flush=True,
    )


def first_job_commands(address: str, auth: bool) -> list[str]:
    """Return the commands that run a job and show its output, for a shell without settings."""
    commands = [f'export PATH="{Path(sys.executable).parent}:$PATH"']
    if address != DEFAULT_ADDRESS:
        commands.append(f"export PUNCTUAL_URL={address}")
    if auth:
        commands.append("export PUNCTUAL_TOKEN=pnc_…")
    return [
        *commands,
        "punctual jobs create hello --bash 'echo hello'",
        "punctual runs watch hello",
        "punctual runs output hello",
    ]


def tune_garbage_collector() -> None:
    """Make cyclic garbage collection rare. Rows come and go by the thousand and hold no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


def main(env: Mapping[str, str] = os.environ) -> int:
    log = set_up_logging(clock.wall)
    hide_this_process()
    try:
        options = Options.from_env(env)
        connections = find_max_connections(log)
        listener = listen(options.port)
        is_new = not (options.data / DATABASE).exists()
        store = Store.open(options.data, log=log)
    except PunctualError as error:
        print(f"punctual: {error.message}", file=sys.stderr)
        return 1
    if is_new and not options.data.is_absolute():
        hint = "a node started in another folder has other data: set PUNCTUAL_DATA to name one"
        log("data_folder_made", path=options.data.absolute(), note=hint)
    try:
        uvloop.run(serve(store, options, listener, connections, log))
    except PunctualError as error:
        print(f"punctual: {error.message}", file=sys.stderr)
        return 1
    finally:
        store.close()
        listener.close()
    return 0
