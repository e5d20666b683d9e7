"""Leads calls and storages of a trace back to ONNX nodes, layers and roles."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from .header import ACTIVATIONS, GRADIENTS, INPUTS, PARAMETERS

ALL_CALLS = "all calls"  # the layer where the kernel alone is known

_NODE = re.compile(r"node '(?P<name>.*)' \((?P<op>[^()]*)\)(?P<gradient> gradient)?$")
_UPDATE = re.compile(r"update of '(?P<name>.*)'$")


@dataclass(frozen=True)
class Source:
    """Where an op comes from: the ONNX node or parameter, its layer, and the phase of the step.

    phase: ``forward``, ``backward`` or ``update``. more: of how many other nodes it may be.
    """

    node: str
    op: str
    layer: str
    phase: str
    more: str = ""

    def label(self) -> str:
        """``layer1.0.conv1 (Conv) gradient``, in one line."""
        kind = f" ({self.op})" if self.op else ""
        phase = {"backward": " gradient", "update": " update"}.get(self.phase, "")
        return self.node + kind + phase + self.more


@functools.lru_cache(maxsize=4096)
def parse_source(text: str) -> Source:
    """The ``source`` of an op of an OpGraph."""
    if match := _NODE.match(text):
        phase = "backward" if match["gradient"] else "forward"
        return Source(match["name"], match["op"], layer_of(match["name"]), phase)
    if match := _UPDATE.match(text):
        # A parameter's name is its node's name and its own.
        return Source(match["name"], "", layer_of(layer_of(match["name"])), "update")
    phase = "backward" if text.endswith("gradient") else "forward"
    name = text.removesuffix(" gradient") or "unnamed"
    return Source(name, "", name, phase)


def kernel_source(kernel: str, texts: list[str]) -> Source:
    """Where the calls of a kernel come from, of which each text names one."""
    if not texts:
        return Source(kernel, "", ALL_CALLS, "forward")
    sources = [parse_source(text) for text in texts]
    first = sources[0]
    same_layer = all(source.layer == first.layer for source in sources)
    phase = first.phase if all(s.phase == first.phase for s in sources) else "forward"
    more = f" or {len(texts) - 1} more" if len(texts) > 1 else ""
    layer = first.layer if same_layer else "several layers"
    return Source(first.node, first.op, layer, phase, more)


def layer_of(node: str) -> str:
    """What the node is part of: its name without the last component (``layer1.0.conv1``,
    ``/layers/0/MatMul``), or the name itself if it has one component."""
    parts = [part for part in re.split(r"[./]", node) if part]
    if len(parts) < 2:
        return node.strip("/") or node
    return re.split(r"[./](?=[^./]*$)", node.rstrip("./"))[0].lstrip("/")


class Naming:
    """Names for one trace, from its header."""

    def __init__(self, header: dict[str, Any]) -> None:
        self.header = header
        graph = header.get("graph")
        self.kernels: list[str] = header.get("kernels", [])
        self._ops: list[Any] = [] if graph is None else graph["ops"]
        self._tensors = [] if graph is None else graph["tensors"]
        instructions = [] if graph is None else graph["instructions"]
        self._order = [index for kind, index in instructions if kind == "op"]
        self._results = self._state_of_results(graph)
        self._kernel_sources: dict[int, Source] = {}

    def _state_of_results(self, graph: Any) -> dict[int, str]:
        """Role of each tensor that becomes the next step's state."""
        if graph is None:
            return {}
        roles = {
            tensor: parameter["role"]
            for tensor, parameter in zip(
                graph["parameters"], self.header.get("parameters", []), strict=False
            )
        }
        return {
            result: roles.get(parameter, PARAMETERS) for result, parameter in graph["next_state"]
        }

    @functools.cached_property
    def sources(self) -> list[Source]:
        """Of each call of a step, in order; empty where the order depends on data."""
        return [parse_source(self._ops[index][3]) for index in self._order]

    def call(self, position: int, kernel: int) -> Source:
        """The source of a step's call number ``position``, which runs kernel ``kernel``."""
        if 0 <= position < len(self.sources):
            return self.sources[position]
        return self._source_of_kernel(kernel)

    def _source_of_kernel(self, kernel: int) -> Source:
        if (source := self._kernel_sources.get(kernel)) is None:
            name = self.kernels[kernel] if kernel < len(self.kernels) else f"kernel {kernel}"
            source = kernel_source(name, self.header.get("kernel_sources", {}).get(name, []))
            self._kernel_sources[kernel] = source
        return source

    def output(self, position: int, output: int, source: Source) -> tuple[str, str, str]:
        """(role, shape, dtype) of output ``output`` of call ``position`` of a step."""
        role = GRADIENTS if source.phase == "backward" else ACTIVATIONS
        if source.phase == "update":
            role = PARAMETERS
        if not 0 <= position < len(self._order):
            return role, "", ""
        op = self._ops[self._order[position]]
        if output >= len(op[2]):
            return role, "", ""
        tensor = op[2][output]
        _, shape, dtype, _ = self._tensors[tensor]
        return self._results.get(tensor, role), "x".join(map(str, shape)), dtype

    def parameter(self, index: int) -> tuple[str, str]:
        """(name, role) of parameter ``index`` of the function."""
        known = self.header.get("parameters", [])
        if index < len(known):
            return known[index]["name"], known[index]["role"]
        return f"input {index}", INPUTS

    def result(self, index: int) -> tuple[str, str]:
        """(name, role) of result ``index`` of the function; "" where the role is its maker's."""
        known = self.header.get("results", [])
        if index >= len(known):
            return f"result {index}", ""
        name = known[index]["name"]
        is_state = known[index]["kind"] == "state"
        return name, self._state_roles.get(name, PARAMETERS) if is_state else ""

    @functools.cached_property
    def _state_roles(self) -> dict[str, str]:
        return {entry["name"]: entry["role"] for entry in self.header.get("parameters", [])}
