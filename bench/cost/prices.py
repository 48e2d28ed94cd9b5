"""AWS's published prices on the day that prices.json names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.cost.meter import Unit

MILLION = 1_000_000
PRICES_FILE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True)
class Prices:
    noted_on: str
    region: str
    units: Mapping[Unit, float]  # dollars per unit
    monthly: Mapping[str, float]
    pages: Mapping[str, str]
    free_sqs: float  # requests per account and month
    assumed: Mapping[str, float]

    def dollars_per_million(self, unit: Unit, amount: float) -> float:
        """Return the dollars for a million times `amount` units."""
        return self.units[unit] * amount * MILLION


@cache
def prices() -> Prices:
    values: dict[str, Any] = json.loads(PRICES_FILE.read_text())
    return Prices(
        noted_on=values["noted"],
        region=values["region"],
        units={
            Unit(name): entry["dollars"] / entry["per"] for name, entry in values["units"].items()
        },
        monthly={name: entry["dollars"] for name, entry in values["monthly"].items()},
        pages={
            name: entry["page"]
            for section in ("units", "monthly")
            for name, entry in values[section].items()
        },
        free_sqs=values["free"]["sqs"]["requests"],
        assumed=values["assumed"],
    )
