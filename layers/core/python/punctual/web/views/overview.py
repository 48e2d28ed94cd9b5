"""Render the overview."""

from typing import Any

from punctual.domain.overview import Overview
from punctual.domain.timestamps import format_optional_time


def overview_json(overview: Overview) -> dict[str, Any]:
    return {
        "verdict": overview.verdict.name,
        "sentence": overview.sentence,
        "since": format_optional_time(overview.since),
        "facts": [
            {"code": fact.code, "text": fact.text, "count": fact.number} for fact in overview.facts
        ],
    }
