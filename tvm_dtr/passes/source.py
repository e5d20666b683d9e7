"""Reading what is planned for: a program, an OpGraph or a graph of the literature."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import MALFORMED, UsageError
from .graph import PlanGraph, graph_of_program
from .node_link import graph_of_node_link, is_node_link

FORMS = "a program (.tdtr), an OpGraph or a networkx graph (.json)"


def load_graph(path: str | os.PathLike[str], require_sha256: str | None = None) -> PlanGraph:
    """Reads a graph to plan for, told apart by the file's suffix and content.

    Raises:
        UsageError: the file is missing or is none of these.
        ProgramError: a program that is damaged, was made by another version, or has not the
            SHA-256 required.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise UsageError(f"graph '{path}' {what}: name {FORMS}")
    if path.suffix == ".tdtr":
        from ..program import load

        return graph_of_program(load(path, require_sha256=require_sha256), path.stem)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if is_node_link(data):
            return graph_of_node_link(data, path.stem)
        return _op_graph(data, path.stem)
    except OSError as error:
        raise UsageError(f"graph '{path}' cannot be read: {error.strerror or error}") from error
    except MALFORMED as error:
        raise UsageError(f"graph '{path}' is not {FORMS}: {error}") from error


def _op_graph(data: dict[str, Any], name: str) -> PlanGraph:
    from ..compile.opgraph import OpGraph
    from ..replay import replay_of
    from .differentiation import backward_ops

    graph = OpGraph.from_dict(data)
    pairs = [(result, parameter) for result, parameter in data.get("next_state", [])]
    core = replay_of(graph, data.get("inputs", []), pairs)
    backward, side = backward_ops(graph)
    names = [op.source for op in graph.ops]
    return PlanGraph(name, core, backward=backward, side_ops=side, op_names=names)
