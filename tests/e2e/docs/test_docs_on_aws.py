"""Commands of pages against a deployment. `make rehearse` runs them."""

import os
from pathlib import Path

import pytest

from tests.e2e.docs.pages import has_aws_commands, pages, run_on_aws

PASSED_ON = ("PUNCTUAL_URL", "PUNCTUAL_TOKEN", "PUNCTUAL_STAGE")
AUTHORITY = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")


@pytest.mark.parametrize("name", [page for page in pages() if has_aws_commands(page)])
def test_page_commands_work_on_aws(name: str, tmp_path: Path) -> None:
    if not os.environ.get("PUNCTUAL_STAGE"):
        pytest.skip("no deployment is named: PUNCTUAL_STAGE, PUNCTUAL_URL, PUNCTUAL_TOKEN")
    environment = {name: os.environ[name] for name in PASSED_ON}
    environment |= {name: text for name, text in os.environ.items() if name.startswith("AWS_")}
    authority = os.environ.get("PUNCTUAL_AUTHORITY")
    if authority:
        environment |= dict.fromkeys(AUTHORITY, authority)
    run_on_aws(name, tmp_path, environment)
