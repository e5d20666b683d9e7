"""What a virtual machine writes down as it runs: every event, or samples of its memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import UsageError


class Tracing:
    """A part of VirtualMachine: starts and ends recordings."""

    module: Any
    _program: Any
    _call: Callable[..., Any]  # VirtualMachine's

    def start_trace(self, path: str | os.PathLike[str], name: str = "program") -> None:
        """Writes every call, allocation, eviction and decision from now on to the file ``path``.

        The file streams: a crash leaves all but the last fifth of a second. ``tvm-dtr report``,
        ``tvm-dtr trace`` and ``tvm_dtr.trace.read_events`` read it. ``name`` is its title.

        Raises:
            UsageError: the file cannot be written, or sizes change: trace one of them.
        """
        from .trace.format import encode_header
        from .trace.header import make_header
        from .vm_sizes import refuse_sizes

        refuse_sizes(self._program, "a trace")
        header = bytearray(encode_header(make_header(self, name)))
        self._call("trace_events", os.fspath(path), header)

    def stop_trace(self, **facts: Any) -> None:
        """Ends the trace, adding ``facts`` (JSON) to it; nothing if there is none.

        Raises:
            UsageError: the file has ended early, as the disk is full.
        """
        self.module["trace_note"](json.dumps({"end": facts}))
        failure = self.module["stop_tracing_events"]()
        if failure:
            raise UsageError(f"the trace has ended early: {failure}")

    def trace_memory(self, on: bool) -> None:
        """Starts (anew) or stops sampling memory in use at each change."""
        self.module["trace_memory"](on)

    def memory_trace(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and active bytes of the samples since ``trace_memory(True)``, which go on."""
        samples = self.memory_samples()
        return samples[:, 0], samples[:, 1]

    def memory_samples(self) -> np.ndarray:
        """(n, 4) of seconds, active bytes, budget in bytes, kind (0 memory in use changed, 1 an op
        was run again, 2 a storage was evicted). The samples start anew."""
        samples = self.module["trace_memory"](True)
        return np.empty((0, 4)) if samples is None else samples.numpy()
