"""Training step -> fused primitive functions, in time linear in the number of ops.

FuseOps and the common-subexpression pass of TVM 0.19 are quadratic in the length of a function,
SimplifyExpr worse. So the step is cut, in execution order, into segments of bounded length which
are fused one by one; a fusion is lost only where a cut falls. In the same walk no-op calls
are dropped and calls of constants alone are folded, if their result is small.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relay

from tvm_dtr.progress import Progress, counted
from tvm_dtr.relay_facts import arguments, children, name_of
from tvm_dtr.relay_graph import ExprMap

from .codegen import quiet
from .opgraph import tensor_bytes
from .relay_walk import operands, post_order, types_of

SEGMENT_CALLS = 2000  # FuseOps takes 0.5 s here; twice the length takes three times as long
FOLD_LIMIT_BYTES = 4096  # folding must not turn a fill or broadcast into a stored tensor

# Calls that do nothing when input and output have the same type.
NO_OP_CALLS = frozenset({"reshape", "cast", "broadcast_to", "squeeze", "collapse_sum_to"})

# A value of the step: an expression of the original function and a field of it (0 for tensors).
Value = tuple[Any, int]


@dataclass
class Segment:
    """A fused piece of the step: `function` maps the values `inputs` to the values `outputs`."""

    function: relay.Function
    inputs: list[Value]
    outputs: list[Value]


@dataclass
class FusedStep:
    """Segments in execution order; `results` are the values that the step returns."""

    parameters: list[Any]
    segments: list[Segment]
    results: list[Value]


@dataclass
class _Draft:
    """A segment being written. rewritten: original expression -> expression in this segment."""

    rewritten: ExprMap = field(default_factory=ExprMap)
    inputs: dict[Value, relay.Var] = field(default_factory=dict)
    outputs: dict[Value, None] = field(default_factory=dict)


def fuse(
    function: relay.Function,
    segment_calls: int | None = None,
    progress: Progress | None = None,
) -> FusedStep:
    """Cut, simplify and fuse a type-inferred function in graph form whose body is a tuple.

    Raises ModelError where the function is not straight-line or a shape is not fixed.
    """
    return _Fuser(segment_calls or SEGMENT_CALLS).run(function, progress)


class _Fuser:
    def __init__(self, segment_calls: int) -> None:
        self.segment_calls = segment_calls
        self.drafts: list[_Draft] = []
        self.alias = ExprMap()  # dropped or folded expression -> what stands for it
        self.home = ExprMap()  # call -> index of its draft
        self.folded: dict[int, list[tuple[Any, Any]]] = {}

    def run(self, function: relay.Function, progress: Progress | None) -> FusedStep:
        order = post_order(function.body)
        calls = 0
        for expr in counted(order, "cutting into segments", progress):
            if isinstance(expr, relay.Call):
                calls = self._place(expr, calls)
        results = [v for f in operands(function.body) for v in self._values(f)]
        for value in results:
            self._export(value)
        drafts = counted(self.drafts, "fusing segments", progress)
        segments = [self._fused(draft) for draft in drafts]
        return FusedStep(list(function.params), segments, results)

    def _place(self, call: relay.Call, calls: int) -> int:
        """Put a call into the current draft unless it folds away; the number of calls so far."""
        stand_in = self._no_op(call) or self._fold(call)
        if stand_in is not None:
            self.alias[call] = stand_in
            return calls
        index = calls // self.segment_calls
        if index == len(self.drafts):
            self.drafts.append(_Draft())
        self.home[call] = index
        old = arguments(call)
        args = [self._import(arg, index) for arg in old]
        unchanged = all(a is b or a.same_as(b) for a, b in zip(args, old, strict=True))
        self.drafts[index].rewritten[call] = (
            call if unchanged else relay.Call(call.op, args, call.attrs, call.type_args, call.span)
        )
        return calls + 1

    def _resolve(self, expr: Any) -> Any:
        """What stands for `expr`: follows dropped calls and fields of literal tuples."""
        while True:
            if expr in self.alias:
                expr = self.alias[expr]
            elif isinstance(expr, relay.TupleGetItem):
                whole = self._resolve(children(expr)[0])
                if not isinstance(whole, relay.Tuple):
                    return expr
                expr = children(whole)[expr.index]
            else:
                return expr

    def _values(self, expr: Any) -> list[Value]:
        """The tensors of an expression as values of the original function."""
        expr = self._resolve(expr)
        if isinstance(expr, relay.Tuple):
            return [value for f in children(expr) for value in self._values(f)]
        if isinstance(expr, relay.TupleGetItem):
            return [(self._resolve(children(expr)[0]), expr.index)]
        return [(expr, i) for i in range(len(types_of(expr)))]

    def _export(self, value: Value) -> None:
        if value[0] in self.home:
            self.drafts[self.home[value[0]]].outputs[value] = None

    def _import(self, expr: Any, index: int) -> Any:
        """`expr` as an operand in draft `index`."""
        expr = self._resolve(expr)
        draft = self.drafts[index]
        if expr in draft.rewritten:
            return draft.rewritten[expr]
        if isinstance(expr, relay.Constant):
            return expr
        if isinstance(expr, relay.Tuple):
            old = children(expr)
            new = [self._import(f, index) for f in old]
            kept = all(n.same_as(o) for n, o in zip(new, old, strict=True))
            result = expr if kept else relay.Tuple(new, expr.span)
        elif isinstance(expr, relay.TupleGetItem) and self._is_home(children(expr)[0], index):
            inner = self._import(children(expr)[0], index)
            kept = inner.same_as(children(expr)[0])
            result = expr if kept else relay.TupleGetItem(inner, expr.index, expr.span)
        else:
            result = self._import_variable(expr, draft)
        draft.rewritten[expr] = result
        return result

    def _is_home(self, expr: Any, index: int) -> bool:
        return self.home.get(self._resolve(expr)) == index

    def _import_variable(self, expr: Any, draft: _Draft) -> Any:
        """Variables for a function parameter or for what another segment computes."""
        variables = []
        for value in self._values(expr):
            if value not in draft.inputs:
                shape, dtype = types_of(value[0])[value[1]]
                is_parameter = isinstance(value[0], relay.Var)
                name = f"v{len(draft.inputs)}"
                draft.inputs[value] = (
                    value[0] if is_parameter else relay.var(name, shape=shape, dtype=dtype)
                )
                self._export(value)
            variables.append(draft.inputs[value])
        is_tuple = isinstance(expr.checked_type, tvm.ir.TupleType)
        return relay.Tuple(variables) if is_tuple else variables[0]

    def _no_op(self, call: relay.Call) -> Any | None:
        """The operand of a call that does not change it."""
        if name_of(call) not in NO_OP_CALLS:
            return None
        operand = arguments(call)[0]
        same = types_of(operand) == types_of(call)
        return self._resolve(operand) if same else None

    def _fold(self, call: relay.Call) -> Any | None:
        """The constant, or tuple of constants, that a call of constants gives, if it is small."""
        args = [self._constant(arg) for arg in arguments(call)]
        if not args or any(arg is None for arg in args):
            return None
        if sum(tensor_bytes(*kind) for kind in types_of(call)) > FOLD_LIMIT_BYTES:
            return None
        bound = relay.Call(call.op, args, call.attrs, call.type_args)
        known = self.folded.setdefault(tvm.ir.structural_hash(bound), [])
        for other, constant in known:
            if tvm.ir.structural_equal(bound, other):
                return constant
        module = tvm.IRModule()
        with quiet(), tvm.target.Target("llvm"):
            constant = relay.transform.FoldConstantExpr(bound, module)
        if self._constant(constant) is None:
            return None
        known.append((bound, constant))
        return constant

    def _constant(self, expr: Any) -> Any | None:
        """The constant, or tuple of constants, that stands for `expr`."""
        expr = self._resolve(expr)
        if isinstance(expr, relay.Tuple):
            fields = [self._constant(field) for field in children(expr)]
            return None if any(field is None for field in fields) else relay.Tuple(fields)
        return expr if isinstance(expr, relay.Constant) else None

    def _fused(self, draft: _Draft) -> Segment:
        outputs = list(draft.outputs)
        fields = []
        for expr, index in outputs:
            new = draft.rewritten[expr]
            is_tuple = isinstance(expr.checked_type, tvm.ir.TupleType)
            fields.append(relay.TupleGetItem(new, index) if is_tuple else new)
        function = relay.Function(list(draft.inputs.values()), relay.Tuple(fields))
        module = tvm.IRModule.from_expr(function)
        with tvm.transform.PassContext(opt_level=3):
            module = relay.transform.InferType()(module)
            module = relay.transform.FuseOps(2)(module)
            module = relay.transform.InferType()(module)
        return Segment(module["main"], list(draft.inputs), outputs)
