"""What reads files and texts from outside, each as a function of bytes.

A target returns or raises a DTRError; anything else is a defect.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mutate import (
    Mutator,
    mutate_bytes,
    mutate_json,
    mutate_json_and_bytes,
    mutate_json_lines,
    mutate_onnx,
)

from tvm_dtr.budget import parse_budget
from tvm_dtr.errors import DTRError
from tvm_dtr.frontend import import_model
from tvm_dtr.passes.graph import PlanGraph
from tvm_dtr.passes.schedule import Schedule
from tvm_dtr.program_file import checked_members, contents, manifest_seal, why_not_here
from tvm_dtr.report.data import report_data
from tvm_dtr.simulation.trace import Trace, load_trace
from tvm_dtr.trace.analysis import Analysis
from tvm_dtr.trace.chrome import chrome_events
from tvm_dtr.trace.format import encode_header, is_event_trace, read_events

CORPUS = Path(__file__).parent / "corpus"
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Target:
    """read: called with each input. mutate: makes inputs of those of the corpus."""

    name: str
    read: Callable[[bytes], None]
    mutate: Mutator

    def corpus(self) -> list[bytes]:
        """Inputs to start from, in order of their names."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())]

    def __call__(self, data: bytes) -> bool:
        """Whether the input was accepted."""
        try:
            self.read(data)
        except DTRError as error:
            # Names and values of the input are quoted: they must not break the line either.
            assert str(error), "an error that says nothing"
            return False
        return True


@contextlib.contextmanager
def _file(data: bytes, suffix: str) -> Iterator[Path]:
    folder = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
    path = folder / f"tvm-dtr-fuzz-{os.getpid()}{suffix}"
    path.write_bytes(data)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _budget(data: bytes) -> None:
    budget = parse_budget(data.decode("utf-8", "surrogateescape"))
    if not budget.automatic:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a share of over 100 %
            size = budget.resolve(1 << 30)
        assert size is None or 0 <= size < 2**63


def _simulate(trace: Trace) -> None:
    """What 'tvm-dtr simulate' asks of a trace, of sizes that end soon."""
    peak = trace.unbudgeted_peak_bytes
    assert trace.constant_fraction >= 0 and trace.largest_op_fraction >= 0
    for share in (1.0, 0.5):
        result = trace.replay.run(
            budget=int(peak * share),
            thrash_limit=trace.thrash_limit,
            exact_bytes=trace.exact_bytes,
            steps=trace.steps,
        )
        assert result["result"] in ("ok", "oom", "thrash")


def _log(data: bytes) -> None:
    with _file(data, ".log") as path:
        trace = load_trace(path)
    _simulate(trace)


def _packed_log(data: bytes) -> None:
    with _file(data, ".log.gz") as path:
        trace = load_trace(path)
    _simulate(trace)


def _graph(data: bytes) -> None:
    with _file(data, ".json") as path:
        trace = load_trace(path)
    _simulate(trace)


def _events(data: bytes) -> None:
    """Reads a trace and makes all that is made of one, pictures and pages apart."""
    with _file(data, ".dtrace") as path:
        is_event_trace(path)
        analysis = Analysis(read_events(path))
    if analysis.steps:
        chrome_events(analysis)
        report_data(analysis, analysis.step())


def _packed_events(data: bytes) -> None:
    """A trace whose header is given as it is before it is packed."""
    head, _, records = data.partition(b"\0")
    try:
        header = json.loads(head)
    except (ValueError, RecursionError):
        return
    whole = encode_header(header) + records
    _events(whole)
    with _file(whole, ".dtrace") as path:
        load_trace(path)


@functools.cache
def _plan_graph() -> PlanGraph:
    data = (CORPUS / "graph" / "step.json").read_bytes()
    with _file(data, ".json") as path:
        return PlanGraph("step", load_trace(path).replay)


def _schedule(data: bytes) -> None:
    Schedule.from_json(data.decode("utf-8", "surrogateescape"), _plan_graph())


def _program(data: bytes) -> None:
    """A file as it is, up to where its native code would be loaded."""
    with _file(data, ".tdtr") as path:
        manifest, members = checked_members(path)
        why_not_here(path, manifest)
        contents(path, manifest, members)


@functools.cache
def _small_members() -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(CORPUS / "program" / "small.tdtr") as whole:
        return [(name, whole.read(name)) for name in whole.namelist()[1:]]


def _manifest(data: bytes) -> None:
    """A program with this manifest, its checksums and its seal in order."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("manifest.json", data)
        for name, content in _small_members():
            archive.writestr(name, content)
        archive.comment = manifest_seal(data)
    _program(stream.getvalue())


def _onnx(data: bytes) -> None:
    with _file(data, ".onnx") as path, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_model(path)
    gc.collect(0)


TARGETS = {
    target.name: target
    for target in (
        Target("budget", _budget, mutate_bytes),
        Target("log", _log, mutate_json_lines),
        Target("packed_log", _packed_log, mutate_bytes),
        Target("graph", _graph, mutate_json),
        Target("schedule", _schedule, mutate_json),
        Target("events", _events, mutate_bytes),
        Target("packed_events", _packed_events, mutate_json_and_bytes),
        Target("program", _program, mutate_bytes),
        Target("manifest", _manifest, mutate_json),
        Target("onnx", _onnx, mutate_onnx),
    )
}
