"""Kernel compiler process: `python -m tvm_dtr.compile.worker`.

Reads one JSON object per line from standard input, {"function": FILE, "name", "target", "object"},
and answers each with {"workspace": [serial, per_thread]} or {"error": TEXT}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import tvm

from tvm_dtr import relay_ops  # noqa: F401  registers the ops that kernels may call
from tvm_dtr.compile.codegen import compile_primitive, reason_of


def main() -> None:
    """Serve until standard input closes."""
    # Whatever TVM or LLVM print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


def _answer(job: dict[str, str]) -> dict[str, Any]:
    try:
        primitive = tvm.ir.load_json(Path(job["function"]).read_text())
        target = tvm.target.Target(job["target"])
        workspace = compile_primitive(primitive, job["name"], target, job["object"])
        return {"workspace": list(workspace)}
    except Exception as error:
        return {"error": reason_of(error)}


if __name__ == "__main__":
    main()
