"""CORS of the deployed API. A browser sends the preflight request without a token."""

import json
from collections.abc import Mapping

import httpx

from tests.rehearsal.deployment import STAGE
from tests.rehearsal.emulator import ROOT
from tests.rehearsal.progress import Failed
from tests.support.acceptance.contract import a_client

ALLOWED = "Access-Control-Allow-Origin"
PATHS = ("/jobs", "/jobs/x/runs/y/output")
ANOTHER = "https://elsewhere.example.com"


def check_cors(url: str, token: str) -> None:
    """Check that pages of the stage's origin may call the API, and other pages may not."""
    described = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"][STAGE]
    (origin,) = described["corsOrigins"]
    with a_client(url, None) as browser:
        for path in PATHS:
            response = _asked(browser, path, origin)
            if not response.is_success or response.headers.get(ALLOWED) != origin:
                raise Failed(f"{path} may not be called from {origin}: {_said(response)}")
            refused = _asked(browser, path, ANOTHER)
            if ALLOWED in refused.headers:
                raise Failed(f"{path} may be called from {ANOTHER}: {_said(refused)}")
    with a_client(url, token) as page:
        answer = page.get("/jobs", headers={"Origin": origin})
        if answer.status_code != 200 or answer.headers.get(ALLOWED) != origin:
            raise Failed(f"a page of {origin} may not read its answer: {_said(answer)}")


def _asked(browser: httpx.Client, path: str, origin: str) -> httpx.Response:
    headers: Mapping[str, str] = {
        "Origin": origin,
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    return browser.options(path, headers=headers)


def _said(answer: httpx.Response) -> str:
    return f"{answer.status_code} {dict(answer.headers)} {answer.text[:500]}"
