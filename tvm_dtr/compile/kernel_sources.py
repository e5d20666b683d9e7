"""Which ONNX nodes each kernel of a program with control flow computes.

TVM's own VM compiler fuses and names these kernels. The names that the front end gave to calls
reach them as spans: the one pass on the way that drops spans, ToBasicBlockNormalForm, is run here,
with the spans put back; before and after the pass that makes kernels of fused functions, the
functions and the kernels are matched by the hash that they share.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay

from .linearize import source_of

BASIC_BLOCKS = "ToBasicBlockNormalForm"
_LOWERING = "LowerTE"


def in_basic_blocks(module: tvm.IRModule) -> tvm.IRModule:
    """``module`` after ToBasicBlockNormalForm, its calls with the spans that they had."""
    made = relay.transform.ToBasicBlockNormalForm()(module)
    for variable in module.get_global_vars():
        before, after = module[variable], made[variable.name_hint]
        if not isinstance(before, relay.Function):
            continue
        spans = _spans(_calls(before), _calls(after))
        if spans:
            made.update_func(made.get_global_var(variable.name_hint), _with_spans(after, spans))
    return made


def _calls(function: relay.Function) -> list[relay.Call]:
    return [expr for expr in _post_order(function) if isinstance(expr, relay.Call)]


def _post_order(expr: Any) -> list[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(expr, found.append)
    return found


def _spans(before: list[relay.Call], after: list[relay.Call]) -> dict[Any, Any]:
    """The spans of calls in ``after``; nothing where the two are not the same calls in order."""
    pairs = list(zip(before, after, strict=False))
    same = all(_callee(a) == _callee(b) for a, b in pairs)
    if len(before) != len(after) or not same:
        return {}
    return {b: a.span for a, b in pairs if a.span is not None}


def _callee(call: relay.Call) -> str:
    return str(getattr(call.op, "name", type(call.op).__name__))


def _with_spans(function: relay.Function, spans: dict[Any, Any]) -> relay.Function:
    """A copy, made from the leaves up: bodies can be very deep."""
    copies: dict[Any, Any] = {}

    def copy_of(expr: Any) -> Any:
        return copies.get(expr, expr)

    for expr in _post_order(function):
        copies[expr] = _copy(expr, copy_of, spans)
    return copies[function]


def _copy(expr: Any, copy_of: Any, spans: dict[Any, Any]) -> Any:
    if isinstance(expr, relay.Call):
        args = [copy_of(arg) for arg in expr.args]
        span = spans.get(expr)
        return relay.Call(copy_of(expr.op), args, expr.attrs, expr.type_args, span)
    if isinstance(expr, relay.Let):
        return relay.Let(expr.var, copy_of(expr.value), copy_of(expr.body))
    if isinstance(expr, relay.Function):
        body = copy_of(expr.body)
        return relay.Function(expr.params, body, expr.ret_type, expr.type_params, expr.attrs)
    if isinstance(expr, relay.If):
        return relay.If(*(copy_of(e) for e in (expr.cond, expr.true_branch, expr.false_branch)))
    if isinstance(expr, relay.Tuple):
        return relay.Tuple([copy_of(field) for field in expr.fields])
    if isinstance(expr, relay.TupleGetItem):
        return relay.TupleGetItem(copy_of(expr.tuple_value), expr.index)
    if isinstance(expr, relay.Match):
        clauses = [relay.Clause(clause.lhs, copy_of(clause.rhs)) for clause in expr.clauses]
        return relay.Match(copy_of(expr.data), clauses, expr.complete)
    return expr


@tvm.instrument.pass_instrument
class KernelSources:
    """Notes, while a module is compiled, the names of the calls that each kernel comes from.

    sources: by kernel, in order of appearance, without repeats.
    """

    def __init__(self) -> None:
        self.sources: dict[str, list[str]] = {}
        self._named: dict[str, list[str]] = {}

    def run_before_pass(self, module: tvm.IRModule, info: Any) -> None:
        if info.name == _LOWERING:
            for primitive in _found(module, relay.Function):
                hashed = _attribute(primitive.attrs, "hash")
                if hashed is not None:
                    self._add(self._named, hashed, source_of(primitive))

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        if info.name == _LOWERING:
            for call in _found(module, relay.Call):
                if getattr(call.op, "name", "") == "call_lowered":
                    about = _attribute(call.attrs.metadata, "relay_attrs")
                    for source in self._named.get(str(_attribute(about, "hash")), []):
                        self._add(self.sources, str(call.args[0].name_hint), source)

    @staticmethod
    def _add(to: dict[str, list[str]], key: Any, source: str) -> None:
        names = to.setdefault(str(key), [])
        if source and source not in names:
            names.append(source)


def _found(module: tvm.IRModule, kind: Any) -> list[Any]:
    functions = [f for f in module.functions.values() if isinstance(f, relay.Function)]
    return [e for function in functions for e in _post_order(function) if isinstance(e, kind)]


def _attribute(attributes: Any, name: str) -> Any:
    names = [] if attributes is None else list(attributes.keys())  # no ``in`` for attributes
    return attributes[name] if name in names else None
