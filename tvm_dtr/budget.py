"""Memory budgets as people write them: ``512MiB``, ``1.5GB``, ``40%``, ``none``, plain bytes."""

from __future__ import annotations

import operator
import re
import warnings
from dataclasses import dataclass
from typing import Any

from .errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}
_MOST_BYTES = 2**63 - 1
_MOST_FRACTION = 1e6  # of a peak of less than 2^43 bytes
_FORMS = (
    "use bytes (536870912), a size (512MiB, 1.5GB), a share of the unbudgeted peak (40%), "
    "auto or none"
)


@dataclass(frozen=True)
class Budget:
    """A parsed budget: exactly one of ``bytes`` and ``fraction`` is set, or neither (no
    budget); or ``automatic``: the smallest with an acceptable predicted slowdown."""

    bytes: int | None = None
    fraction: float | None = None
    automatic: bool = False

    @property
    def unlimited(self) -> bool:
        return self.bytes is None and self.fraction is None and not self.automatic

    def resolve(self, unbudgeted_peak_bytes: int) -> int | None:
        """The budget in bytes, ``None`` for no budget; ``40%`` is of ``unbudgeted_peak_bytes``.

        Warns of a share over 100 %, under which nothing is ever evicted.
        """
        if self.automatic:
            raise UsageError("the budget 'auto' is for running or training a program: give a size")
        if self.fraction is not None:
            if self.fraction > 1:
                warnings.warn(
                    f"memory budget {100 * self.fraction:g}% is above the unbudgeted peak of "
                    f"{format_bytes(unbudgeted_peak_bytes)}: nothing has to be evicted",
                    stacklevel=2,
                )
            return int(unbudgeted_peak_bytes * self.fraction)
        return self.bytes


def parse_budget(text: Any) -> Budget:
    """Reads a memory budget.

    Args:
        text: an int of Python or numpy (bytes), a Budget, ``None`` or ``"none"`` (no budget),
            ``"512MiB"``, ``"1.5GB"``, ``"40%"`` (of the unbudgeted peak), or
            ``"auto"`` (the smallest whose predicted slowdown is at most 1.2).

    Raises:
        UsageError: the text is none of these, not positive, or over 2^63 - 1 bytes.
    """
    if text is None or isinstance(text, Budget):
        return text or Budget()
    if not isinstance(text, str):
        count = _whole_number(text)
        # str() of an int refuses thousands of digits; hex() does not.
        shown = str(count) if abs(count) <= 2 * _MOST_BYTES else hex(count)
        return _checked(Budget(bytes=count), shown)
    cleaned = text.strip().lower()
    if cleaned == "none":
        return Budget()
    if cleaned == "auto":
        return Budget(automatic=True)
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?|-?\.\d+)\s*(%|[kmgt]?i?b?)", cleaned, re.ASCII)
    if match is None or (match[2] != "%" and match[2] not in _UNITS):
        raise UsageError(f"memory budget '{text}' does not parse: {_FORMS}")
    number = float(match[1])
    if match[2] == "%":
        return _checked(Budget(fraction=number / 100), text)
    if number > _MOST_BYTES:  # before int(), which takes at most some thousand digits
        raise _too_large(text)
    scale = _UNITS[match[2]]
    exact = int(match[1]) * scale if match[1].lstrip("-").isdigit() else int(number * scale)
    return _checked(Budget(bytes=exact), text)


def _whole_number(value: object) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"memory budget {value!r} is a {type(value).__name__}: {_FORMS}") from None


def _too_large(text: str) -> UsageError:
    shown = text if len(text) <= 40 else text[:37] + "..."
    return UsageError(f"memory budget '{shown}' is over 2^63 - 1 bytes: {_FORMS}")


def _checked(budget: Budget, text: str) -> Budget:
    number = budget.bytes if budget.fraction is None else budget.fraction
    if number is not None and number <= 0:
        raise UsageError(f"memory budget '{text}' is not positive: {_FORMS}")
    if (budget.bytes or 0) > _MOST_BYTES or (budget.fraction or 0) > _MOST_FRACTION:
        raise _too_large(text)
    return budget


def format_bytes(count: int) -> str:
    """``612.0 MiB``: for messages and tables."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
