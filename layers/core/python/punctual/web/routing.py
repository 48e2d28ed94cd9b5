"""Declare routes once, find the route of a request, and turn errors into problem documents."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from aws_lambda_powertools.event_handler.api_gateway import Router

from punctual.domain.errors import NotFound, PunctualError
from punctual.domain.tenants.roles import Role
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE
from punctual.engine.queries.slices import Sliced, finish
from punctual.web.contract import CLAIM_PATHS, PUBLIC_PATHS, REQUIRED_ROLES
from punctual.web.http.guards import check_accept
from punctual.web.http.problems import (
    RequestRejected,
    internal_error_reply,
    not_installed,
    problem_reply,
)
from punctual.web.http.query import Query
from punctual.web.http.request import Reply, Request

# Long work is sliced: the reply comes after some slices.
HandlerResult = Reply | Sliced[Reply]
Handler = Callable[..., HandlerResult]
H = TypeVar("H", bound=Handler)
ANY_MEDIA_TYPE = "*/*"
_PLANNED_RESOURCES = ("events",)


class Log(Protocol):
    def __call__(self, event: str, /, **fields: Any) -> None: ...


class Route(NamedTuple):
    method: str
    rule: str
    handler: Handler
    produces: str
    takes_query: bool  # the handler checks the query parameters itself

    def perform(self, request: Request, arguments: Mapping[str, str]) -> HandlerResult:
        required = REQUIRED_ROLES.get((self.method, self.rule))
        if required is not None and request.caller.role < required:
            raise _role_too_low(request.caller.role, required)
        if self.produces is not ANY_MEDIA_TYPE:
            check_accept(request.headers, self.produces)
        if request.query and not self.takes_query:
            Query(request.query, ()).finish()
        return self.handler(request, **arguments)


class _PathNode:
    """One segment of a path: children by name, one child for any name, routes by method."""

    def __init__(self) -> None:
        self.children: dict[str, _PathNode] = {}
        self.variable: tuple[str, _PathNode] | None = None
        self.routes: dict[str, Route] = {}


def produces(media_type: str) -> Callable[[H], H]:
    """Mark a handler that does not answer JSON."""

    def mark(handler: H) -> H:
        handler.produces = media_type  # type: ignore[attr-defined]
        return handler

    return mark


def takes_query(handler: H) -> H:
    """Mark a handler that reads query parameters. Every other handler rejects them."""
    handler.takes_query = True  # type: ignore[attr-defined]
    return handler


class RouteTable(Router):
    """Powertools' router with handlers that take a `Request` and the names in the path.

    A Lambda resolver includes the table. The node calls it directly, because the steps of
    powertools cost more than the handler itself.
    """

    def __init__(
        self,
        log: Log,
        from_event: Callable[..., Any] | None = None,
        check_tenant: Callable[[str], None] | None = None,
    ) -> None:
        """`check_tenant` gets the tenant of each call that needs a token. It may raise an error."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._from_event = from_event
        self._log = log
        self._check_tenant = check_tenant
        self._root = _PathNode()
        self.declared: list[Route] = []

    def route(self, rule: str, method: Any, *args: Any, **options: Any) -> Any:
        declare = super().route(rule, method, *args, **options)

        def register(handler: Handler) -> Handler:
            media_type = getattr(handler, "produces", JSON_MEDIA_TYPE)
            # A probe may add a parameter of its own to get past a cache.
            is_probe = rule in PUBLIC_PATHS - CLAIM_PATHS
            any_query = getattr(handler, "takes_query", False) or is_probe
            for name in [method] if isinstance(method, str) else method:
                route = Route(name.upper(), rule, handler, media_type, any_query)
                self._add(route)
            declare(self._for_lambda(route))
            return handler

        return register

    def add_foreign(self, method: str, rule: str) -> None:
        """Add a route that another function of the same API serves."""
        self._add(Route(method, rule, _redirect, ANY_MEDIA_TYPE, True))

    def answer(self, request: Request) -> HandlerResult:
        """Return the reply to a request, or the slices of work that end with the reply."""
        return self._call_handler(self._dispatch, request)

    def answer_whole(self, request: Request) -> Reply:
        """Return the reply to a request. All slices run now, on this thread."""
        return _finish_reply(self.answer(request))

    def answer_event(self, perform: Callable[[Request], Reply]) -> Any:
        """Answer the event that powertools holds."""
        assert self._from_event is not None, "this table has no gateway"
        return self._from_event(self, perform)

    def _dispatch(self, request: Request) -> HandlerResult:
        node, arguments = self._find_node(request.path)
        route = node.routes.get(request.method)
        if route is None:
            if request.method == "HEAD" and "GET" in node.routes:
                route = node.routes["GET"]
            else:
                return self._answer_other_method(request, node)
        return route.perform(request, arguments)

    def _answer_other_method(self, request: Request, node: _PathNode) -> Reply:
        methods = {*node.routes, "OPTIONS"} | ({"HEAD"} if "GET" in node.routes else set())
        names = ", ".join(sorted(methods))
        if request.method == "OPTIONS":
            return Reply(204, b"", (("allow", names),), "")
        text = f"This address does not allow {request.method[:32]}; it allows {names}."
        raise RequestRejected("METHOD_NOT_ALLOWED", text, ("allow", names))

    def _find_node(self, path: str) -> tuple[_PathNode, dict[str, str]]:
        node, arguments = self._root, {}
        segments = path.split("/")[1:]
        if len(segments) > 1 and not segments[-1]:
            segments.pop()
        for segment in segments:
            name = segment if "%" not in segment else _unquote(segment)
            child = node.children.get(name)
            if child is None:
                if node.variable is None or not name:
                    raise _unknown_path(segments)
                argument, child = node.variable
                arguments[argument] = name
            node = child
        if not node.routes:
            raise _unknown_path(segments)
        return node, arguments

    def _add(self, route: Route) -> None:
        self.declared.append(route)
        node = self._root
        for segment in route.rule.split("/")[1:]:
            if segment.startswith("<"):
                if node.variable is None:
                    node.variable = (segment[1:-1], _PathNode())
                node = node.variable[1]
            else:
                node = node.children.setdefault(segment, _PathNode())
        node.routes[route.method] = route

    def _for_lambda(self, route: Route) -> Callable[..., Any]:
        def call(**arguments: str) -> Any:
            def perform(request: Request) -> HandlerResult:
                return route.perform(request, arguments)

            return self.answer_event(
                lambda request: _finish_reply(self._call_handler(perform, request))
            )

        return call

    def _call_handler(
        self, handler: Callable[[Request], HandlerResult], request: Request
    ) -> HandlerResult:
        try:
            tenant = request.caller.tenant
            if self._check_tenant is not None and tenant and request.path not in PUBLIC_PATHS:
                self._check_tenant(tenant)
            result = handler(request)
        except Exception as error:
            return self._error_reply(request, error)
        return result if isinstance(result, Reply) else self._run_slices(request, result)

    def _run_slices(self, request: Request, slices: Sliced[Reply]) -> Sliced[Reply]:
        try:
            return (yield from slices)
        except Exception as error:
            return self._error_reply(request, error)

    def _error_reply(self, request: Request, error: Exception) -> Reply:
        if isinstance(error, PunctualError) and (
            isinstance(error, RequestRejected) or error.code != "INTERNAL"
        ):
            return problem_reply(error, request.request_id)
        self._log(
            "request_failed",
            request_id=request.request_id,
            method=request.method,
            path=request.path,
            error=type(error).__name__,
            where=_source_line(error),
        )
        return internal_error_reply(request.request_id)


def _finish_reply(result: HandlerResult) -> Reply:
    return result if isinstance(result, Reply) else finish(result)


def _role_too_low(role: Role, required: Role) -> RequestRejected:
    text = (
        f"This call needs the role {required.label} or a higher one; the token's is {role.label}."
    )
    return RequestRejected("FORBIDDEN", text)


def _redirect(request: Request, **_arguments: str) -> Reply:
    """Redirect to the exact address. API Gateway sends only other spellings to this function."""
    path = request.path.rstrip("/")
    if path == request.path:
        raise RequestRejected(
            "MISROUTED", "This call reached a part of Punctual that does not serve it."
        )
    query = f"?{request.query}" if request.query else ""
    return Reply(308, b"", (("location", f"{request.root}{path}{query}"),), "")


def _source_line(error: Exception) -> str:
    """Return the place of the error. The text of the exception may hold data of the caller."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} {code.co_qualname}"


def _unquote(segment: str) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise NotFound("There is nothing at this address.") from None


def _unknown_path(segments: list[str]) -> PunctualError:
    if segments[:1] and segments[0] in _PLANNED_RESOURCES:
        return not_installed(f"/{segments[0]}")
    return NotFound("There is nothing at this address.")
