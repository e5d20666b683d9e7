"""Memory budgets as people write them: ``512MiB``, ``1.5GB``, ``40%``, ``none``, plain bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
_FORMS = (
    "use bytes (536870912), a size (512MiB, 1.5GB), a share of the unbudgeted peak (40%) or none"
)


@dataclass(frozen=True)
class Budget:
    """A parsed budget: exactly one of ``bytes`` and ``fraction`` is set, or neither (no budget)."""

    bytes: int | None = None
    fraction: float | None = None

    @property
    def unlimited(self) -> bool:
        return self.bytes is None and self.fraction is None

    def resolve(self, unbudgeted_peak_bytes: int) -> int | None:
        """The budget in bytes, ``None`` for no budget; ``40%`` is of ``unbudgeted_peak_bytes``."""
        if self.fraction is not None:
            return int(unbudgeted_peak_bytes * self.fraction)
        return self.bytes


def parse_budget(text: str | int | Budget | None) -> Budget:
    """Reads a memory budget.

    Args:
        text: an int (bytes), ``None`` or ``"none"`` (no budget), ``"512MiB"``, ``"1.5GB"``,
            ``"40%"`` (of the unbudgeted peak).

    Raises:
        UsageError: the text is none of these, or not positive.
    """
    if text is None or isinstance(text, Budget):
        return text or Budget()
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise UsageError(f"memory budget {text!r} is a {type(text).__name__}: {_FORMS}")
    if isinstance(text, int):
        return _positive(Budget(bytes=text), str(text))
    cleaned = text.strip().lower()
    if cleaned == "none":
        return Budget()
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(%|[kmgt]?i?b?)", cleaned)
    if match is None or (match[2] != "%" and match[2] not in _UNITS):
        raise UsageError(f"memory budget '{text}' does not parse: {_FORMS}")
    number = float(match[1])
    if match[2] == "%":
        return _positive(Budget(fraction=number / 100), text)
    scale = _UNITS[match[2]]
    exact = int(match[1]) * scale if match[1].isdigit() else int(number * scale)
    return _positive(Budget(bytes=exact), text)


def _positive(budget: Budget, text: str) -> Budget:
    if (budget.bytes if budget.fraction is None else budget.fraction) == 0 or (
        budget.bytes is not None and budget.bytes < 0
    ):
        raise UsageError(f"memory budget '{text}' is not positive: {_FORMS}")
    return budget


def format_bytes(count: int) -> str:
    """``612.0 MiB``: for messages and tables."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
