"""What happened in a trace: calls, lives of storages, memory by role, one pass over the events."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import UsageError
from .format import Events, Kind
from .header import FREE, INPUTS, ROLES, WORKSPACE
from .naming import Naming, Source


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


_FAILURES = {
    1: "the budget was too small",
    2: "recomputation passed its limit",
    3: "a kernel failed",
}


class Analysis:
    """Steps and storages of a trace. Raises UsageError where its records do not fit together.

    steps: those that began in the trace, the last perhaps cut off (``failed`` says so). storages:
    by number. header: as written.
    """

    def __init__(self, events: Events) -> None:
        self.header = events.header
        self.naming = Naming(events.header)
        self.notes = events.notes
        self.complete = events.complete
        self.damage = events.damage
        self.steps: list[Step] = []
        self.storages: list[Storage] = []
        self._sizes = dict.fromkeys(ROLES, 0)
        self._active = self._mapped = 0
        self._settled = 0, 0  # both after the last event
        self._budget: int | None = None
        self._first_call = 0
        self._makers: dict[int, list[int]] = {}
        self._marked = bool((events.kind == Kind.STEP).any())
        self._step: Step | None = None
        try:
            self._read(events)
        except IndexError as error:
            raise UsageError(
                "the trace is damaged: a record names a storage that no record before it made"
            ) from error

    @property
    def name(self) -> str:
        return self.header.get("name", "program")

    def step(self, number: int | None = None) -> Step:
        """A step by its number; by default the last that ended.

        Raises KeyError with the numbers there are.
        """
        for step in reversed(self.steps):
            if step.number == number if number is not None else step.failed is None:
                return step
        if number is None and self.steps:
            return self.steps[-1]
        there = ", ".join(str(step.number) for step in self.steps) or "none"
        raise KeyError(f"the trace has no step {number}: it has {there}")

    def _read(self, events: Events) -> None:
        self._identify(events)
        self._first_call = 0
        handlers = {kind: getattr(self, "_on_" + kind.name.lower(), None) for kind in Kind}
        columns = (events.kind, events.id, events.value, events.aux, events.ns)
        for kind, index, value, aux, ns in zip(*(c.tolist() for c in columns), strict=True):
            handler = handlers.get(kind)
            if handler is not None:
                handler(ns, index, value, aux)
        last = int(events.ns[-1]) if len(events) else 0
        if self._step is not None:
            self._step.failed = self._step.failed or "the trace ends within this step"
            self._end(last)

    def _identify(self, events: Events) -> None:
        """Name and role of each storage, which the records tell only after it has been filled."""
        kinds = (Kind.INVOKE, Kind.CALL, Kind.STORAGE, Kind.MADE, Kind.INPUT, Kind.OUTPUT)
        wanted = np.isin(events.kind, kinds)
        kernel = 0
        columns = (c[wanted].tolist() for c in (events.kind, events.id, events.value, events.aux))
        for kind, index, value, aux in zip(*columns, strict=True):
            if kind == Kind.INVOKE:
                self._first_call = index
            elif kind == Kind.CALL:
                kernel = aux
            elif kind == Kind.STORAGE:
                self.storages.append(Storage(index, value))
            elif kind == Kind.INPUT:
                storage = self.storages[index]
                storage.name, storage.role = self.naming.parameter(value)
            elif kind == Kind.OUTPUT:
                self._name_result(self.storages[index], value)
            else:
                self._made(self.storages[index], value, aux, kernel)

    def _name_result(self, storage: Storage, index: int) -> None:
        """A result is held until its array is let go, the state until the step after."""
        name, role = self.naming.result(index)
        storage.result = "" if name == storage.name else name
        storage.role = role or storage.role

    def _made(self, storage: Storage, call: int, output: int, kernel: int) -> None:
        self._makers.setdefault(call, []).append(storage.number)
        if storage.call >= 0:
            return  # a second tensor in it
        storage.call = call
        position = call - self._first_call
        source = self.naming.call(position, kernel)
        storage.name, storage.layer = source.label(), source.layer
        made = self.naming.output(position, output, source)
        storage.role, storage.shape, storage.dtype = made

    # -- Steps -------------------------------------------------------------------------------------

    def _begin(self, ns: int, number: int) -> None:
        if self._step is not None:
            self._end(ns)
        self._step = Step(number, ns, budgets=[(ns, self._budget)])
        self._settled = 0, 0
        self._remember(ns)

    def _end(self, ns: int) -> None:
        assert self._step is not None
        self._step.end = ns
        self._step.note_peaks(self._settled)
        self.steps.append(self._step)
        self._step = None

    def _on_step(self, ns: int, number: int, value: int, aux: int) -> None:
        self._begin(ns, number)

    def _on_step_end(self, ns: int, number: int, value: int, aux: int) -> None:
        if self._step is not None:
            self._step.step_seconds = value / 1e9
            self._end(ns)

    def _on_invoke(self, ns: int, number: int, value: int, aux: int) -> None:
        self._first_call = number
        if not self._marked:
            self._begin(ns, len(self.steps))

    def _on_invoke_end(self, ns: int, result: int, value: int, aux: int) -> None:
        if self._step is None:
            return
        self._step.failed = _FAILURES.get(result)
        if not self._marked:
            self._end(ns)

    # -- Runs and decisions ------------------------------------------------------------------------

    def _on_call(self, ns: int, number: int, value: int, kernel: int) -> None:
        self._run(ns, number, value, kernel, again=False)

    def _on_recompute(self, ns: int, number: int, value: int, kernel: int) -> None:
        self._run(ns, number, value, kernel, again=True)
        for index in self._makers.get(number, ()):
            self.storages[index].recomputations += 1
            if self._step is not None:
                self._step.made_again.append((ns - value, index))

    def _run(self, ns: int, number: int, value: int, kernel: int, again: bool) -> None:
        if self._step is not None:
            source = self.naming.call(number - self._first_call, kernel)
            self._step.runs.append(Run(number, source, kernel, ns - value, value, again))

    def _on_decision(self, ns: int, index: int, value: int, candidates: int) -> None:
        if self._step is not None:
            (score,) = struct.unpack("<f", struct.pack("<I", value & 0xFFFFFFFF))
            self._step.decisions.append(Decision(ns, index, score, candidates))

    def _on_search(self, ns: int, index: int, value: int, aux: int) -> None:
        if self._step is not None:
            self._step.searched.append(value)

    def _on_budget(self, ns: int, unlimited: int, value: int, aux: int) -> None:
        self._budget = None if unlimited else value
        if self._step is not None:
            self._step.budgets.append((ns, self._budget))

    # -- Storages ----------------------------------------------------------------------------------

    def _on_allocate(self, ns: int, index: int, value: int, aux: int) -> None:
        storage = self.storages[index]
        storage.block_bytes = value
        storage.spans.append((ns, None, ""))
        self._sizes[storage.role] += value
        self._active += value
        self._remember(ns)

    def _on_free(self, ns: int, index: int, value: int, aux: int) -> None:
        self._leave(ns, index, value, "freed")

    def _on_unreferenced(self, ns: int, index: int, value: int, aux: int) -> None:
        self._leave(ns, index, value, "unreferenced")

    def _on_evict(self, ns: int, index: int, value: int, aux: int) -> None:
        self._leave(ns, index, value, "evicted")
        self.storages[index].evictions += 1
        if self._step is not None:
            self._step.evicted.append((ns, index))

    def _on_overwrite(self, ns: int, index: int, value: int, aux: int) -> None:
        self.storages[index].overwrites += 1
        if self._step is not None:
            self._step.overwritten.append((ns, index))

    def _leave(self, ns: int, index: int, value: int, how: str) -> None:
        storage = self.storages[index]
        if storage.spans:
            storage.spans[-1] = (storage.spans[-1][0], ns, how)
        self._sizes[storage.role] -= value
        self._active -= value
        self._remember(ns)

    # -- Memory ------------------------------------------------------------------------------------

    def _on_workspace(self, ns: int, index: int, value: int, aux: int) -> None:
        self._sizes[WORKSPACE] += value
        self._active += value
        self._remember(ns)

    def _on_workspace_free(self, ns: int, index: int, value: int, aux: int) -> None:
        self._sizes[WORKSPACE] -= value
        self._active -= value
        self._remember(ns)

    def _on_active(self, ns: int, index: int, value: int, aux: int) -> None:
        self._active = value
        self._remember(ns)

    def _on_mapped(self, ns: int, index: int, value: int, aux: int) -> None:
        self._mapped = value
        self._remember(ns)

    def _remember(self, ns: int) -> None:
        step = self._step
        if step is None:
            return
        used = sum(self._sizes.values()) - self._sizes[FREE]
        sizes = list(self._sizes.values())
        # Until the record of what is mapped comes, right after, it is at least what is in use.
        sizes[-1] = max(self._mapped, self._active) - used
        if step.memory and step.memory[-1][0] == ns:
            step.memory.pop()  # one event's records: only the last one tells the whole
        else:
            step.note_peaks(self._settled)
        self._settled = self._active, self._mapped
        step.memory.append((ns, tuple(sizes)))
