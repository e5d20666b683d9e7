"""What is simulated: one step's ops with their costs, from a log, a program or a graph file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import MALFORMED, UsageError
from ..replay import STEPS, unbudgeted_peak
from .dtr_log import read_dtr_log

if TYPE_CHECKING:
    from ..program import Program

# The published simulator stops when recomputation exceeds the step's own work, the VM at ten
# times as much.
LOG_THRASH_LIMIT = 1.0
PROGRAM_THRASH_LIMIT = 10.0
FORMS = (
    "a DTR log (.log, .log.gz), a program (.tdtr), an event trace (.dtrace) or an OpGraph (.json)"
)


@dataclass
class Trace:
    """One step to simulate.

    exact_bytes: sizes count as given and small storages like others, as in the published
        simulator; False rounds as the VM's arena does.
    thrash_limit: recomputation over the step's own work at which a run counts as thrashing.
    overhead_ns: what a step takes outside of its kernels, under any budget: slowdowns are over
        own work and this.
    """

    name: str
    replay: _core.Replay
    exact_bytes: bool = False
    thrash_limit: float = PROGRAM_THRASH_LIMIT
    overhead_ns: float = 0.0

    @cached_property
    def unbudgeted_peak_bytes(self) -> int:
        """The most bytes in use at a time when nothing is ever evicted."""
        return unbudgeted_peak(self.replay, self.steps, self.exact_bytes)

    @property
    def steps(self) -> int:
        """Steps to replay: several of a program, whose state carries over; a log has one."""
        return 1 if self.exact_bytes else STEPS

    @cached_property
    def constant_fraction(self) -> float:
        """What is pinned throughout, as a share of the unbudgeted peak."""
        return self.replay.constant_bytes() / max(self.unbudgeted_peak_bytes, 1)

    @cached_property
    def largest_op_fraction(self) -> float:
        """Operands and workspace of the largest op, as a share of the unbudgeted peak."""
        return self.replay.largest_op_bytes() / max(self.unbudgeted_peak_bytes, 1)


def as_trace(source: str | os.PathLike[str] | Trace | Program) -> Trace:
    """A trace of ``source``: a path (see load_trace), a Program or a Trace.

    Raises:
        UsageError, ProgramError: see load_trace.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | os.PathLike):
        return load_trace(source)
    return Trace("program", source.replay)


def load_trace(path: str | os.PathLike[str], require_sha256: str | None = None) -> Trace:
    """Reads a DTR log, a program or an OpGraph, told apart by the file's suffix.

    Raises:
        UsageError: the file is missing or is none of these.
        ProgramError: a program that is damaged, was made by another version, or has not the
            SHA-256 required.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise UsageError(f"trace '{path}' {what}: name {FORMS}")
    if path.name.endswith((".log", ".log.gz")):
        name = path.name.removesuffix(".gz").removesuffix(".log")
        return Trace(name, read_dtr_log(path), exact_bytes=True, thrash_limit=LOG_THRASH_LIMIT)
    if path.suffix == ".tdtr":
        from ..program import load

        return Trace(path.stem, load(path, require_sha256=require_sha256).replay)
    if path.name.endswith((".dtrace", ".dtrace.gz")):
        return Trace(path.name.split(".dtrace")[0], _graph_of_events(path))
    if path.suffix == ".json":
        return _read_graph(path)
    raise UsageError(f"trace '{path}': the suffix says nothing known: name {FORMS}")


def _graph_of_events(path: Path) -> _core.Replay:
    from ..compile.opgraph import OpGraph
    from ..replay import replay_of
    from ..trace.format import read_header

    graph = read_header(path).get("graph")
    if graph is None:
        raise UsageError(f"trace '{path}' is of a bare executable: it has no graph to simulate")
    return replay_of(OpGraph.from_dict(graph), graph["inputs"], graph["next_state"])


def _read_graph(path: Path) -> Trace:
    from ..compile.opgraph import OpGraph
    from ..replay import replay_of

    data: Any
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        pairs = [(result, parameter) for result, parameter in data.get("next_state", [])]
        replay = replay_of(OpGraph.from_dict(data), data.get("inputs", []), pairs)
        return Trace(path.stem, replay, overhead_ns=float(data.get("overhead_ns", 0.0)))
    except OSError as error:
        raise UsageError(f"trace '{path}' cannot be read: {error.strerror or error}") from error
    except MALFORMED as error:
        raise UsageError(
            f"trace '{path}' is no OpGraph as 'tvm-dtr run --trace' writes it: {error}"
        ) from error
