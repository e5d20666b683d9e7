"""Which ONNX nodes the kernels of a program with control flow come from.

TVM's VM compiler drops the sources of calls in its first pass. What it keeps of each call is op,
attributes and types: a kernel may be of any node that had such a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tvm
from tvm import relay
from tvm.ir.instrument import pass_instrument

from tvm_dtr.relay_graph import source_of

Signature = tuple[Any, ...]

FUSED, LOWERED = "LabelOps", "LowerTE"  # TVM's passes behind which kernels are known and named
MOST_SOURCES = 16  # of a kernel: more would tell nobody anything


@pass_instrument
class KernelSources:
    """Follows the compilation of ``module``; ``of`` then has the sources of a kernel by its name.

    Where calls in a kernel have sources in common, these are the kernel's; else those of the call
    that fewest nodes could have made, the last of such calls.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        self._nodes: dict[Signature, dict[str, None]] = {}
        self._by_hash: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}
        for call in _op_calls(_bodies(module)):
            source = source_of(call)
            if source is not None:
                self._nodes.setdefault(_signature(call), {})[source] = None

    def of(self, kernel: str) -> list[str]:
        return self._by_hash.get(self._names.get(kernel, ""), [])

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        if str(info.name) == FUSED:
            for function in _primitives(_bodies(module)):
                self._by_hash[str(function.attrs["hash"])] = self._sources(function)
        elif str(info.name) == LOWERED:
            for call in _calls(_bodies(module)):
                if isinstance(call.op, tvm.ir.Op) and call.op.name == "call_lowered":
                    self._note_name(call)

    def _note_name(self, call: relay.Call) -> None:
        known = call.attrs.metadata["relay_attrs"] if call.attrs is not None else {}
        if known and "hash" in known:
            self._names[call.args[0].name_hint] = str(known["hash"])

    def _sources(self, function: relay.Function) -> list[str]:
        found = [
            self._nodes[signature]
            for signature in map(_signature, _op_calls([function.body]))
            if signature in self._nodes
        ]
        if not found:
            return []
        fewest = min(reversed(found), key=len)
        common = [source for source in fewest if all(source in nodes for nodes in found)]
        return (common or list(fewest))[:MOST_SOURCES]


def _bodies(module: tvm.IRModule) -> list[relay.Expr]:
    return [f.body for f in module.functions.values() if isinstance(f, relay.Function)]


def _nodes(roots: Iterable[relay.Expr]) -> list[relay.Expr]:
    found: list[relay.Expr] = []
    for root in roots:
        relay.analysis.post_order_visit(root, found.append)
    return found


def _calls(roots: Iterable[relay.Expr]) -> Iterator[relay.Call]:
    return (node for node in _nodes(roots) if isinstance(node, relay.Call))


def _op_calls(roots: Iterable[relay.Expr]) -> Iterator[relay.Call]:
    return (call for call in _calls(roots) if isinstance(call.op, tvm.ir.Op))


def _primitives(roots: Iterable[relay.Expr]) -> Iterator[relay.Function]:
    for node in _nodes(roots):
        attributes = node.attrs if isinstance(node, relay.Function) else None
        if attributes is not None and "Primitive" in attributes and "hash" in attributes:
            yield node


def _signature(call: relay.Call) -> Signature:
    types = [*(arg.checked_type for arg in call.args), call.checked_type]
    attributes = 0 if call.attrs is None else tvm.ir.structural_hash(call.attrs)
    return (call.op.name, attributes, *map(tvm.ir.structural_hash, types))
