"""The clock and the source of ids."""

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]


NewId = Callable[[], str]
