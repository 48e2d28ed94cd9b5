"""Routes are declared once, on powertools' router; this is where they are found and guarded."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from aws_lambda_powertools.event_handler.api_gateway import Router

from punctual.domain.errors import NotFound, PunctualError
from punctual.domain.tenants.roles import Role
from punctual.engine.queries.slices import Sliced, finish
from punctual.web.contract import NEEDS, PUBLIC
from punctual.web.features import NOT_HERE
from punctual.web.http.guards import check_accept
from punctual.web.http.problems import RequestRejected, problem_reply, unknown_problem
from punctual.web.http.query import Query
from punctual.web.http.request import JSON, Reply, Request

Answer = Reply | Sliced[Reply]  # of long work the reply comes after some slices
Handler = Callable[..., Answer]
H = TypeVar("H", bound=Handler)
ANYTHING = "*/*"
_LATER = ("artifacts", "events")


class Log(Protocol):
    def __call__(self, event: str, /, **fields: Any) -> None: ...


class Declared(NamedTuple):
    method: str
    rule: str
    handler: Handler
    produces: str
    queried: bool  # it looks at the parameters of a query itself

    def perform(self, request: Request, arguments: Mapping[str, str]) -> Answer:
        needs = NEEDS.get((self.method, self.rule))
        if needs is not None and request.caller.role < needs:
            raise _may_not(request.caller.role, needs)
        if self.produces is not ANYTHING:
            check_accept(request.headers, self.produces)
        if request.query and not self.queried:
            Query(request.query, ()).finish()
        return self.handler(request, **arguments)


class _Place:
    """One step of a path: what stands below it by name, what below any name, what is here."""

    def __init__(self) -> None:
        self.below: dict[str, _Place] = {}
        self.any: tuple[str, _Place] | None = None
        self.here: dict[str, Declared] = {}


def produces(kind: str) -> Callable[[H], H]:
    """Marks a handler that answers something else than JSON."""

    def mark(handler: H) -> H:
        handler.produces = kind  # type: ignore[attr-defined]
        return handler

    return mark


def queried(handler: H) -> H:
    """Marks a handler that knows parameters of a query; whatever another is asked is refused."""
    handler.queried = True  # type: ignore[attr-defined]
    return handler


class Table(Router):
    """powertools' router, whose handlers take a `Request` and the names in the path.

    A Lambda resolver includes it; a server of our own asks it directly, for powertools' way from
    event to handler and back costs more than all of ours.
    """

    def __init__(self, from_event: Callable[..., Any], log: Log) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._from_event = from_event
        self._log = log
        self._root = _Place()
        self.declared: list[Declared] = []
        self._admit: Callable[[str], None] | None = None

    def admit_by(self, admit: Callable[[str], None]) -> None:
        """`admit` is asked with the tenant of each call that is not free, and may refuse it."""
        self._admit = admit

    def route(self, rule: str, method: Any, *args: Any, **options: Any) -> Any:
        declare = super().route(rule, method, *args, **options)

        def register(handler: Handler) -> Handler:
            kind = getattr(handler, "produces", JSON)
            # Who asks for these may put a parameter of its own there, against what caches.
            asked = getattr(handler, "queried", False) or rule in PUBLIC
            for one in [method] if isinstance(method, str) else method:
                declared = Declared(one.upper(), rule, handler, kind, asked)
                self._add(declared)
            declare(self._for_lambda(declared))
            return handler

        return register

    def served_elsewhere(self, method: str, rule: str) -> None:
        """Known here for its address alone: another function of the same API serves it."""
        self._add(Declared(method, rule, _go_there, ANYTHING, True))

    def answer(self, request: Request) -> Answer:
        """The reply to any request, or the slices of work that end with it."""
        return self._guarded(self._dispatch, request)

    def whole_answer(self, request: Request) -> Reply:
        """The reply to any request, where no other work waits for this thread."""
        return _whole(self.answer(request))

    def _dispatch(self, request: Request) -> Answer:
        place, arguments = self._find(request.path)
        declared = place.here.get(request.method)
        if declared is None:
            if request.method == "HEAD" and "GET" in place.here:
                declared = place.here["GET"]
            else:
                return self._other_method(request, place)
        return declared.perform(request, arguments)

    def _other_method(self, request: Request, place: _Place) -> Reply:
        known = {*place.here, "OPTIONS"} | ({"HEAD"} if "GET" in place.here else set())
        allow = ("allow", ", ".join(sorted(known)))
        if request.method == "OPTIONS":
            return Reply(204, b"", (allow,), "")
        text = f"{request.method[:32]} is not something this address takes."
        raise RequestRejected("METHOD_NOT_ALLOWED", text, allow)

    def _find(self, path: str) -> tuple[_Place, dict[str, str]]:
        place, arguments = self._root, {}
        parts = path.split("/")[1:]
        if len(parts) > 1 and not parts[-1]:
            parts.pop()
        for part in parts:
            name = part if "%" not in part else _unquoted(part)
            below = place.below.get(name)
            if below is None:
                if place.any is None or not name:
                    raise _nothing_here(parts)
                argument, below = place.any
                arguments[argument] = name
            place = below
        if not place.here:
            raise _nothing_here(parts)
        return place, arguments

    def _add(self, declared: Declared) -> None:
        self.declared.append(declared)
        place = self._root
        for part in declared.rule.split("/")[1:]:
            if part.startswith("<"):
                if place.any is None:
                    place.any = (part[1:-1], _Place())
                place = place.any[1]
            else:
                place = place.below.setdefault(part, _Place())
        place.here[declared.method] = declared

    def _for_lambda(self, declared: Declared) -> Callable[..., Any]:
        def call(**arguments: str) -> Any:
            def perform(request: Request) -> Answer:
                return declared.perform(request, arguments)

            return self.from_event(lambda request: _whole(self._guarded(perform, request)))

        return call

    def from_event(self, perform: Callable[[Request], Reply]) -> Any:
        """Answer the event that powertools holds."""
        return self._from_event(self, perform)

    def _guarded(self, handler: Callable[[Request], Answer], request: Request) -> Answer:
        try:
            if self._admit is not None and request.caller.tenant and request.path not in PUBLIC:
                self._admit(request.caller.tenant)
            answer = handler(request)
        except Exception as error:
            return self._refusal(request, error)
        return answer if isinstance(answer, Reply) else self._guarded_slices(request, answer)

    def _guarded_slices(self, request: Request, steps: Sliced[Reply]) -> Sliced[Reply]:
        try:
            return (yield from steps)
        except Exception as error:
            return self._refusal(request, error)

    def _refusal(self, request: Request, error: Exception) -> Reply:
        known = (
            isinstance(error, RequestRejected) or getattr(error, "code", "INTERNAL") != "INTERNAL"
        )
        if isinstance(error, PunctualError) and known:
            return problem_reply(error, request.request_id)
        return self._unknown(request, error)

    def _unknown(self, request: Request, error: Exception) -> Reply:
        self._log(
            "request_failed",
            request_id=request.request_id,
            method=request.method,
            path=request.path,
            error=type(error).__name__,
            where=_where(error),
        )
        return unknown_problem(request.request_id)


def _whole(answer: Answer) -> Reply:
    return answer if isinstance(answer, Reply) else finish(answer)


def _may_not(role: Role, needs: Role) -> RequestRejected:
    text = f"This call needs the role {needs.word} or a higher one; the token's is {role.word}."
    return RequestRejected("FORBIDDEN", text)


def _go_there(request: Request, **_names: str) -> Reply:
    """Only another spelling of the address comes here: a slash at the end, most often."""
    path = request.path.rstrip("/")
    if path == request.path:
        raise RequestRejected(
            "MISROUTED", "This call reached a part of Punctual that does not serve it."
        )
    query = f"?{request.query}" if request.query else ""
    return Reply(308, b"", (("location", f"{request.root}{path}{query}"),), "")


def _where(error: Exception) -> str:
    # Not the exception's text: it may hold what a caller sent. The place is enough to find it.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno} {code.co_qualname}"


def _unquoted(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise NotFound("There is nothing at this address.") from None


def _nothing_here(parts: list[str]) -> PunctualError:
    if parts[:1] and parts[0] in _LATER:
        return RequestRejected("NOT_INSTALLED", f"/{parts[0]} is {NOT_HERE}.")
    return NotFound("There is nothing at this address.")
