"""Problem documents, request headers, page tokens and query parameters."""

from typing import ClassVar

import pytest

from punctual.domain import errors
from punctual.domain.errors import FieldError, Invalid, NotFound, PunctualError, Unavailable
from punctual.web.http.guards import VersionMatch, check_accept, idempotency_key, if_match
from punctual.web.http.paging import page_cursor, page_token
from punctual.web.http.problems import (
    HTTP_STATUSES,
    RequestRejected,
    internal_error_reply,
    problem_body,
    problem_reply,
)
from punctual.web.http.query import Query
from punctual.web.http.request import Caller, Request


def with_header(name: bytes, value: str) -> Request:
    caller = Caller("t", "c")
    return Request("POST", "/jobs", "", {name: value.encode("latin-1")}, b"", caller, "id")


def test_every_domain_error_has_a_status() -> None:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.code for kind in classes if issubclass(kind, PunctualError)}
    assert codes - HTTP_STATUSES.keys() == set()
    assert {HTTP_STATUSES[code] for code in codes} == {404, 409, 412, 422, 429, 500, 503}


def test_problem_has_the_members_of_rfc_9457_and_names_fields() -> None:
    error = Invalid.of(FieldError("a.b", "is wrong"), FieldError("c", "too"))
    assert problem_body(error, "r1") == {
        "type": "urn:punctual:invalid",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "a.b: is wrong; c: too",
        "code": "INVALID",
        "request_id": "r1",
        "errors": [
            {"field": "a.b", "message": "is wrong"},
            {"field": "c", "message": "too"},
        ],
    }
    assert "errors" not in problem_body(NotFound("no"), "r1")


def test_retryable_problem_has_retry_after() -> None:
    reply = problem_reply(Unavailable("no"), "r1")
    assert (reply.status, dict(reply.headers)) == (503, {"retry-after": "1"})
    assert reply.content_type == "application/problem+json"
    limited = problem_reply(errors.LimitExceeded("slower"), "r1")
    assert (limited.status, dict(limited.headers)) == (429, {"retry-after": "1"})


def test_http_refusal_has_its_own_headers() -> None:
    reply = problem_reply(RequestRejected("METHOD_NOT_ALLOWED", "no", ("allow", "GET")), "r1")
    assert (reply.status, reply.headers) == (405, (("allow", "GET"),))


def test_internal_error_shows_only_the_request_id() -> None:
    reply = internal_error_reply("r9")
    assert reply.status == 500
    assert b"r9" in reply.body


@pytest.mark.parametrize("key", ["a", "x" * 255, "with space", "~!@#"])
def test_idempotency_key_is_printable_ascii(key: str) -> None:
    assert idempotency_key(with_header(b"idempotency-key", key)) == key


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\t", "ü", "a\x7f"])
def test_invalid_idempotency_key_is_refused(key: str) -> None:
    with pytest.raises(Invalid) as raised:
        idempotency_key(with_header(b"idempotency-key", key))
    assert raised.value.errors[0].field == "Idempotency-Key"


@pytest.mark.parametrize(
    ("value", "editions"),
    [
        ('"3"', {3}),
        (' "3" , "5" ', {3, 5}),
        ('W/"3"', set()),
        ('W/"3", "4"', {4}),
        ('"x"', set()),
        ('"03"', set()),
        ('"0"', set()),
        ('""', set()),
        ('"' + "9" * 40 + '"', set()),
    ],
)
def test_if_match_names_editions(value: str, editions: set[int]) -> None:
    assert if_match(with_header(b"if-match", value)) == VersionMatch(frozenset(editions))


def test_if_match_star_accepts_any_edition() -> None:
    assert if_match(with_header(b"if-match", " * ")) is None
    assert if_match(with_header(b"accept", "x")) is None


@pytest.mark.parametrize("value", ["3", "", '"3', 'w/"3"', '"3" "4"', '*, "3"'])
def test_malformed_if_match_is_refused(value: str) -> None:
    with pytest.raises(Invalid) as raised:
        if_match(with_header(b"if-match", value))
    assert raised.value.errors[0].field == "If-Match"


@pytest.mark.parametrize(
    ("accept", "is_accepted"),
    [
        ("application/json", True),
        ("application/*", True),
        ("text/html, */*;q=0.1", True),
        ("Application/JSON ; q=0.5", True),
        ("text/html", False),
        ("text/*", False),
        ("application/json;q=0", False),
        ("*/*, application/json;q=0.0", False),
        ("application/json;q=nan", False),
        ("", False),
    ],
)
def test_accept_header_is_checked(accept: str, is_accepted: bool) -> None:
    headers = {b"accept": accept.encode()}
    if is_accepted:
        check_accept(headers, "application/json")
    else:
        with pytest.raises(RequestRejected):
            check_accept(headers, "application/json")


class TestPageTokens:
    filters: ClassVar[dict[str, list[str]]] = {"status": ["A"]}

    def test_page_token_leads_back_to_its_cursor(self) -> None:
        for cursor in (("a",), ("2026-12-01", "ü")):
            token = page_token("t", "jobs", self.filters, cursor)
            assert token is not None
            assert token.replace("-", "").replace("_", "").isalnum()
            assert page_cursor("t", "jobs", self.filters, token, 1, 2) == cursor

    def test_last_page_has_no_token_and_first_page_no_cursor(self) -> None:
        assert page_token("t", "jobs", self.filters, None) is None
        assert page_cursor("t", "jobs", self.filters, "", 1) is None

    def test_page_token_of_another_tenant_list_or_filter_is_invalid(self) -> None:
        token = page_token("t", "jobs", self.filters, ("a",))
        assert token is not None
        calls: list[tuple[str, str, dict[str, list[str]], str]] = [
            ("u", "jobs", self.filters, token),
            ("t", "runs", self.filters, token),
            ("t", "jobs", {"status": ["B"]}, token),
            ("t", "jobs", {}, token),
            ("t", "jobs", self.filters, token[:-1]),
            ("t", "jobs", self.filters, token + "."),
            ("t", "jobs", self.filters, "." + token),
            ("t", "jobs", self.filters, "A"),
            ("t", "jobs", self.filters, "ü"),
            ("t", "jobs", self.filters, "AAAA" * 10),
        ]
        for tenant, list_name, filters, text in calls:
            with pytest.raises(Invalid) as raised:
                page_cursor(tenant, list_name, filters, text, 1)
            assert [error.field for error in raised.value.errors] == ["next_token"]

    @pytest.mark.parametrize("cursor", [(), ("",), ("a", "b"), ("a" * 257,), ("", "b")])
    def test_cursor_with_wrong_parts_is_invalid(self, cursor: tuple[str, ...]) -> None:
        token = page_token("t", "jobs", self.filters, cursor)
        assert token is not None
        with pytest.raises(Invalid):
            page_cursor("t", "jobs", self.filters, token, 1, 3)


class TestQuery:
    def wrong(self, text: str, *known: str) -> set[str]:
        query = Query(text, known or ("limit", "status", "from", "tag"), ("status", "tag"))
        query.number("limit", 50, 1, 200)
        query.choices("status", ("A", "B"))
        query.time("from")
        query.tags()
        with pytest.raises(Invalid) as raised:
            query.finish()
        return {error.field for error in raised.value.errors}

    def test_query_error_names_every_wrong_parameter(self) -> None:
        text = "limit=0&status=A&status=C&from=soon&tag=a&colour=red&limt=5"
        assert self.wrong(text) == {"limit", "status", "from", "tag", "colour", "limt"}

    @pytest.mark.parametrize("limit", ["", "0", "201", "-1", "+5", "5.0", "٥", "1e2", "9" * 99])
    def test_invalid_limit_is_refused(self, limit: str) -> None:
        assert self.wrong(f"limit={limit}") == {"limit"}

    def test_repeated_single_parameter_is_refused(self) -> None:
        assert self.wrong("limit=5&limit=6") == {"limit"}

    def test_unencoded_plus_in_a_time_is_an_offset(self) -> None:
        query = Query("from=2026-12-01T11:00:00+01:00", ("from",))
        at = query.time("from")
        query.finish()
        assert at is not None
        assert at.isoformat() == "2026-12-01T10:00:00+00:00"

    @pytest.mark.parametrize("text", ["%ff=1", "a=%ff", "&".join(["a=1"] * 101)])
    def test_malformed_query_is_refused(self, text: str) -> None:
        with pytest.raises(Invalid) as raised:
            Query(text, ("a",))
        assert [error.field for error in raised.value.errors] == ["query"]

    def test_tag_parameters_are_parsed_as_pairs(self) -> None:
        query = Query("tag=team:data&tag=a:b:c&tag=x:", ("tag",), ("tag",))
        assert query.tags() == (("a", "b:c"), ("team", "data"), ("x", ""))
        query.finish()
