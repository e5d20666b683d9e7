"""The records of an event trace: what they tell, and whether they are as they were written.

docs/file-formats.md describes them. They are written by src/core/event_trace.cc; both sides share
the numbers of ``Kind``.
"""

from __future__ import annotations

import enum
import json
from typing import Any

import numpy as np

RECORD = np.dtype(
    [("ns", "<u4"), ("kind", "u1"), ("high", "u1"), ("aux", "<u2"), ("id", "<u4"), ("low", "<u4")]
)
_SIZE = RECORD.itemsize
_WORD = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15


class Kind(enum.IntEnum):
    """What a record tells; ids, values and aux as in src/core/event_trace.h."""

    TIME = 1
    STEP = 2
    STEP_END = 3
    INVOKE = 4
    INVOKE_END = 5
    CALL = 6
    RECOMPUTE = 7
    STORAGE = 8
    ALLOCATE = 9
    FREE = 10
    EVICT = 11
    UNREFERENCED = 12
    WORKSPACE = 13
    WORKSPACE_FREE = 14
    ACTIVE = 15
    MAPPED = 16
    PIN = 17
    UNPIN = 18
    VIEW = 19
    OVERWRITE = 20
    DECISION = 21
    SEARCH = 22
    BUDGET = 23
    INPUT = 24
    OUTPUT = 25
    MADE = 26
    NOTE = 27
    CHECK = 28


# Their id is a storage that there is.
_OF_STORAGES = (
    Kind.ALLOCATE,
    Kind.FREE,
    Kind.EVICT,
    Kind.UNREFERENCED,
    Kind.PIN,
    Kind.UNPIN,
    Kind.VIEW,
    Kind.OVERWRITE,
    Kind.DECISION,
    Kind.INPUT,
    Kind.OUTPUT,
    Kind.MADE,
)


def checksum(data: bytes) -> int:
    """40 bits over whole records, as in event_trace.cc: the sum of their 64-bit words and the sum
    of those sums (Fletcher, 1982), mixed."""
    words = np.frombuffer(data, "<u8")
    order = np.arange(len(words), 0, -1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        first, second = int(words.sum(dtype=np.uint64)), int((words * order).sum(dtype=np.uint64))
    mixed = first ^ ((second << 32 | second >> 32) & _WORD)
    return ((mixed * _ODD) & _WORD) >> 24


class Blocks:
    """What follows the header of a trace.

    records: those that are as they were written, without notes and checks. notes: the JSON objects.
    damaged_at: at which byte of the body it is damaged, None if it is not; reason: how that shows.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._all = np.frombuffer(body, RECORD, len(body) // _SIZE)
        kinds = self._all["kind"]
        self._marks = np.flatnonzero((kinds == Kind.NOTE) | (kinds == Kind.CHECK))
        self._kept: list[np.ndarray] = []
        self.notes: list[dict[str, Any]] = []
        self.damaged_at: int | None = None
        self.reason = ""
        start: int | None = 0
        while start is not None and self.damaged_at is None:
            start = self._block(start)
        self.records: np.ndarray = np.concatenate([self._all[:0], *self._kept])
        self._check_storages()

    def _block(self, start: int) -> int | None:
        """Takes what begins at record ``start``; where the next block begins, None at the end."""
        next_mark = np.searchsorted(self._marks, start)
        if next_mark == len(self._marks):
            self._tail(start)
            return None
        mark = int(self._marks[next_mark])
        if self._all["kind"][mark] == Kind.NOTE and mark == start:
            return self._note(mark)
        if self._is_checked(start, mark):
            self._kept.append(self._all[start:mark])
        else:
            self._damaged(start)
        return mark + 1

    def _is_checked(self, start: int, mark: int) -> bool:
        check = self._all[mark]
        value = int(check["low"]) | int(check["high"]) << 32
        counted = check["kind"] == Kind.CHECK and check["id"] == mark - start
        counted = counted and check["ns"] == check["aux"] == 0
        return bool(counted and checksum(self._bytes(start, mark)) == value)

    def _tail(self, start: int) -> None:
        """What a crash has left without a check: up to the first that is no record."""
        tail = self._all[start:]
        strange = np.flatnonzero((tail["kind"] < min(Kind)) | (tail["kind"] > max(Kind)))
        if len(strange):
            self._damaged(start + int(strange[0]))
            tail = tail[: strange[0]]
        self._kept.append(tail)

    def _note(self, at: int) -> int | None:
        length = int(self._all["low"][at])
        end = at + 1 + -(-length // _SIZE)
        if end > len(self._all):
            return None  # cut off
        text = self._bytes(at + 1, end)
        try:
            record = self._all[at]
            if checksum(text) >> 8 != int(record["id"]) or text[:length].rstrip() != text.rstrip():
                raise ValueError("it has changed")
            if record["ns"] or record["aux"] or record["high"]:
                raise ValueError("its record has changed")
            note = json.loads(text[:length])
            if not isinstance(note, dict):
                raise ValueError("it is no JSON object")
            self.notes.append(note)
        except (ValueError, RecursionError):
            self._damaged(at)
        return end

    def _damaged(self, at: int, reason: str = "these are not the bytes that were written") -> None:
        self.damaged_at, self.reason = at * _SIZE, reason

    def _check_storages(self) -> None:
        """Cuts off at the first record of a storage that there is not, in a tail without check."""
        kinds, ids = self.records["kind"], self.records["id"].astype(np.int64)
        known = np.cumsum(kinds == Kind.STORAGE)
        unknown = np.isin(kinds, _OF_STORAGES) & (ids >= known)
        unknown |= (kinds == Kind.STORAGE) & (ids != known - 1)
        if unknown.any():
            first = int(unknown.argmax())
            self.records = self.records[:first]
            if self.damaged_at is None:
                self._damaged(first, "a record names a storage that there is not")

    def _bytes(self, start: int, end: int) -> bytes:
        return self._body[start * _SIZE : end * _SIZE]
