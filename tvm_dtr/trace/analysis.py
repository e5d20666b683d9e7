"""What happened in a trace: calls, lives of storages, memory by role, one pass over the events."""

from __future__ import annotations

import struct

import numpy as np

from ..errors import UsageError
from .format import Events, Kind
from .header import FREE, ROLES, WORKSPACE
from .naming import Naming
from .steps import Decision, Run, Step, Storage

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
