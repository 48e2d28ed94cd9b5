"""AWS's published prices on the day that prices.json names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.meter import Unit

MILLION = 1_000_000
FILE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True)
class Prices:
    noted: str
    region: str
    units: Mapping[Unit, float]  # dollars per unit
    monthly: Mapping[str, float]
    pages: Mapping[str, str]
    free_sqs: float  # requests per account and month
    assumed: Mapping[str, float]

    def a_million(self, unit: Unit, amount: float) -> float:
        """Return the dollars for a million times `amount` units."""
        return self.units[unit] * amount * MILLION


@cache
def prices() -> Prices:
    values: dict[str, Any] = json.loads(FILE.read_text())
    return Prices(
        noted=values["noted"],
        region=values["region"],
        units={Unit(name): one["dollars"] / one["per"] for name, one in values["units"].items()},
        monthly={name: one["dollars"] for name, one in values["monthly"].items()},
        pages={
            name: one["page"] for kind in ("units", "monthly") for name, one in values[kind].items()
        },
        free_sqs=values["free"]["sqs"]["requests"],
        assumed=values["assumed"],
    )
