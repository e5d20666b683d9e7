"""Reads the op logs of the DTR authors (JSON lines, also gzipped) into a program to replay.

The format is that of the simulator published with the paper (Kirisame et al., ICLR 2021,
appendix D): CONSTANT, MEMORY, ALIAS, CALL, MUTATE, COPY, COPY_FROM, RELEASE, ANNOTATE; times in
nanoseconds, sizes in bytes, both as decimal strings. The run starts after ANNOTATE START.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import MALFORMED, UsageError

_NO_LOG = (*MALFORMED, StopIteration, EOFError, zlib.error)
OP, VIEW, KILL, CONSTANT, RETAIN = range(5)


class LogReader:
    """Turns names that come and go into tensors, storages, ops and reference changes."""

    def __init__(self) -> None:
        self.kernels: list[tuple[float, int]] = []
        self.storages: list[int] = []
        self.tensors: list[tuple[int, int]] = []
        self.ops: list[tuple[int, list[int], list[int]]] = []
        self.instructions: list[tuple[int, int]] = []
        self._names: dict[str, int] = {}
        self._references: list[int] = []

    def read(self, lines: Iterator[dict[str, Any]]) -> _core.Replay:
        for line in lines:
            if line["INSTRUCTION"] == "ANNOTATE" and line.get("ANNOTATION") == "START":
                break
        for line in lines:
            handler = getattr(self, "_on_" + line["INSTRUCTION"].lower(), None)
            if handler is None:
                raise KeyError(line["INSTRUCTION"])
            handler(line, lines)
        results = [t for t, count in enumerate(self._references) if count > 0]
        return _core.Replay(
            kernels=self.kernels,
            storages=self.storages,
            tensors=self.tensors,
            ops=self.ops,
            pinned=[],
            results=results,
            instructions=self.instructions,
        )

    def _on_annotate(self, line: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        pass

    def _on_constant(self, line: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        tensor = self._tensor(self._storage(int(next(lines)["MEMORY"])))
        self.instructions.append((CONSTANT, tensor))
        self._bind(line["NAME"], tensor)

    def _on_call(self, line: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        inputs = [self._names[name] for name in line["ARGS"]]
        outputs = []
        for _ in line["RESULT"]:
            memory = int(next(lines)["MEMORY"])
            alias = int(next(lines)["ALIAS"])
            storage = self._storage(memory) if alias < 0 else self.tensors[inputs[alias]][0]
            outputs.append(self._tensor(storage))
        self._call(inputs, outputs, line["TIME"])
        for name, tensor in zip(line["RESULT"], outputs, strict=True):
            self._bind(name, tensor)

    def _on_mutate(self, line: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        inputs = [self._names[name] for name in line["ARGS"]]
        mutated = [int(position) for position in line["MUTATE"]]
        fresh = [
            self._tensor(self._storage(self.storages[self.tensors[inputs[i]][0]])) for i in mutated
        ]
        self._call(inputs, fresh, line["TIME"])
        for position, tensor in zip(mutated, fresh, strict=True):
            name = line["ARGS"][position]
            self._release(self._names[name])
            self._bind(name, tensor)

    def _on_copy(self, line: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        tensor = self._names[line["SRC"]]
        self._retain(tensor)
        self._names[line["DST"]] = tensor

    def _on_copy_from(self, line: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        tensor = self._names[line["SRC"]]
        self._retain(tensor)
        self._release(self._names[line["DST"]])
        self._names[line["DST"]] = tensor

    def _on_release(self, line: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        tensor = self._names.pop(line["NAME"], None)
        if tensor is not None:
            self._release(tensor)

    def _call(self, inputs: list[int], outputs: list[int], time: str) -> None:
        self.instructions.append((OP, len(self.ops)))
        self.ops.append((len(self.kernels), inputs, outputs))
        self.kernels.append((float(time), 0))

    def _storage(self, size: int) -> int:
        self.storages.append(size)
        return len(self.storages) - 1

    def _tensor(self, storage: int) -> int:
        self.tensors.append((storage, -1))
        self._references.append(1)
        return len(self.tensors) - 1

    def _bind(self, name: str, tensor: int) -> None:
        self._names[name] = tensor

    def _retain(self, tensor: int) -> None:
        self._references[tensor] += 1
        self.instructions.append((RETAIN, tensor))

    def _release(self, tensor: int) -> None:
        self._references[tensor] -= 1
        self.instructions.append((KILL, tensor))


def read_dtr_log(path: str | Path) -> _core.Replay:
    """Reads a log file of the DTR authors.

    Raises:
        UsageError: the file cannot be read or is not such a log; names the line.
    """
    path = Path(path)
    number = 0

    def lines(file: Any) -> Iterator[dict[str, Any]]:
        nonlocal number
        for number, text in enumerate(file, 1):  # noqa: B007
            yield json.loads(text)

    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            return LogReader().read(lines(file))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _NO_LOG as error:
        raise UsageError(f"{path}: line {number} is no DTR log instruction: {error}") from error
