"""Steps, calls and storages of a trace, as tvm_dtr.trace.analysis fills them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .header import INPUTS, ROLES
from .naming import Source


@dataclass
class Storage:
    """A buffer and when it was in memory.

    bytes: as asked for; block_bytes: what it takes. result: the step's result that it is, "" for
    none. spans: (from ns, to ns, how it ended), the last may be open (to is None). call: number of
    the call that made it, -1 for none. overwrites: how often an update has written over it.
    """

    number: int
    bytes: int
    name: str = "constant"
    role: str = INPUTS
    layer: str = ""
    result: str = ""
    shape: str = ""
    dtype: str = ""
    block_bytes: int = 0
    call: int = -1
    spans: list[tuple[int, int | None, str]] = field(default_factory=list)
    evictions: int = 0
    recomputations: int = 0
    overwrites: int = 0

    def label(self) -> str:
        """Its name, and that of the result that it is."""
        return f"{self.name}: {self.result}" if self.result else self.name

    def resident_ns(self, start: int, end: int) -> int:
        """Nanoseconds in memory between two moments."""
        return sum(
            max(0, min(end, end if to is None else to) - max(start, since))
            for since, to, _ in self.spans
        )


@dataclass(frozen=True)
class Run:
    """One run of a kernel. number: of the call that ran first; start and duration in ns."""

    number: int
    source: Source
    kernel: int
    start: int
    duration: int
    again: bool


@dataclass(frozen=True)
class Decision:
    """A storage chosen to go. score: what the policy minimises (NaN: it has none)."""

    ns: int
    storage: int
    score: float
    candidates: int


@dataclass
class Step:
    """One training step (or invocation, where no step was marked) and its sums.

    memory: (ns, {role: bytes}) after each change; ``free`` is mapped and unused. Seconds and
    bytes are those of the VM's stats.
    """

    number: int
    start: int
    end: int = 0
    step_seconds: float | None = None
    runs: list[Run] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    evicted: list[tuple[int, int]] = field(default_factory=list)
    made_again: list[tuple[int, int]] = field(default_factory=list)
    overwritten: list[tuple[int, int]] = field(default_factory=list)
    searched: list[int] = field(default_factory=list)
    budgets: list[tuple[int, int | None]] = field(default_factory=list)
    memory: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    peak_active_bytes: int = 0
    peak_mapped_bytes: int = 0
    failed: str | None = None

    @property
    def budget_bytes(self) -> int | None:
        return self.budgets[-1][1] if self.budgets else None

    @property
    def peak_bytes(self) -> int:
        """As in the run's results: mapped under a budget, else in use."""
        return self.peak_active_bytes if self.budget_bytes is None else self.peak_mapped_bytes

    @property
    def compute_seconds(self) -> float:
        return sum(run.duration for run in self.runs if not run.again) / 1e9

    @property
    def remat_seconds(self) -> float:
        return sum(run.duration for run in self.runs if run.again) / 1e9

    @property
    def search_seconds(self) -> float:
        return sum(self.searched) / 1e9

    @property
    def rematerializations(self) -> int:
        return sum(run.again for run in self.runs)

    @property
    def evictions(self) -> int:
        return len(self.evicted)

    @property
    def overwrites(self) -> int:
        return len(self.overwritten)

    @property
    def roles_at_peak(self) -> dict[str, int]:
        """Bytes by role when the most was held, and of that the most in use: they add up to
        ``peak_bytes``. Without a budget what is free does not count."""
        limited = self.budget_bytes is not None
        held = (sizes if limited else (*sizes[:-1], 0) for _, sizes in self.memory)
        fullest = max(held, key=lambda sizes: (sum(sizes), -sizes[-1]), default=())
        return dict(zip(ROLES, fullest, strict=False))

    def note_peaks(self, held: tuple[int, int]) -> None:
        active, mapped = held
        self.peak_active_bytes = max(self.peak_active_bytes, active)
        self.peak_mapped_bytes = max(self.peak_mapped_bytes, mapped)

    def totals(self) -> dict[str, Any]:
        """The result fields, under the names that every table has."""
        names = (
            "budget_bytes",
            "peak_bytes",
            "step_seconds",
            "compute_seconds",
            "remat_seconds",
            "search_seconds",
            "evictions",
            "rematerializations",
        )
        return {name: getattr(self, name) for name in names}
