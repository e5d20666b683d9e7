"""Reverse-mode differentiation of Relay in graph form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relay

from ..errors import ModelError
from ..progress import Progress, counted
from ..relay_facts import arguments, called, name_of
from ..relay_graph import (
    Expr,
    calls_op,
    children,
    dtype_of,
    infer_local,
    is_tensor,
    post_order,
    source_of,
    stamp,
    substitute,
    tensor_type,
)
from ..relay_ops import take_gradient_onto
from .composite import composite_name
from .recomputation import ResultsAgain
from .rules import CONSTANT_OPS, GRADIENTS, Adjoint, Rule


def op_name(call: relay.Call) -> str:
    """Name under which ``call`` is in the table of rules."""
    op = called(call)
    if isinstance(op, relay.Var):  # control flow: see tvm_dtr.control_flow
        return op.name_hint
    return composite_name(call) or name_of(call)


def mark_needed(order: Sequence[Expr], wrt: set[Expr]) -> set[Expr]:
    """Expressions through which something of ``wrt`` is reached along differentiable edges."""
    needed: set[Expr] = set()
    for expr in order:
        if isinstance(expr, relay.Call):
            if op_name(expr) not in CONSTANT_OPS and any(arg in needed for arg in arguments(expr)):
                needed.add(expr)
        elif isinstance(expr, relay.Tuple):
            if any(field in needed for field in children(expr)):
                needed.add(expr)
        elif isinstance(expr, relay.TupleGetItem):
            if children(expr)[0] in needed and "float" in dtype_of(expr):
                needed.add(expr)
        elif expr in wrt:
            needed.add(expr)
    return needed


def _rule(call: relay.Call) -> Rule:
    name = op_name(call)
    if name not in GRADIENTS and composite_name(call) is not None:
        return _recomputed
    if name not in GRADIENTS:
        where = source_of(call) or "a node of the model"
        raise ModelError(
            f"{where}: the op has no gradient here (Relay op {name}); "
            "the parameters before it cannot be trained"
        )
    return GRADIENTS[name]


def _recomputed(adjoint: Adjoint) -> list[Expr | None]:
    """Gradient of a composite without a rule: by those of its parts, computed again from the
    operands. So nothing but the operands is kept for the backward pass; for elementwise bodies
    the recomputation happens inside of the fused backward kernel."""
    function = adjoint.call.op
    body = function.body
    fields = body.fields if isinstance(body, relay.Tuple) else [body]
    seeds: dict[Expr, Expr] = {}
    ends = []
    for field, dy in zip(fields, adjoint.outputs, strict=True):
        if dy is not None:
            shape, dtype = tensor_type(field)
            seed = infer_local(relay.var("seed", shape=shape, dtype=dtype))
            seeds[seed] = dy
            ends.append((field, seed))
    wanted = [p for p, need in zip(function.params, adjoint.needs, strict=True) if need]
    grads = dict(
        zip(
            wanted,
            pullback([o for o, _ in ends], [s for _, s in ends], wanted, _no_control_flow),
            strict=True,
        )
    )
    binding = {**seeds, **dict(zip(function.params, adjoint.call.args, strict=True))}
    made = [g for g in grads.values() if g is not None]
    if _is_cheap(function):  # each gradient from copies of its own: one fused kernel, no tensor
        bound = {g: substitute([g], binding)[0] for g in made}
    else:
        bound = dict(zip(made, substitute(made, binding), strict=True))
    found = [grads.get(p) for p in function.params]
    return [None if g is None else bound[g] for g in found]


# Ops that cost no more than reading their operands: computing them twice is free.
_CHEAP = frozenset(
    {
        *("abs", "add", "cast", "clip", "greater", "greater_equal", "less", "less_equal"),
        *("maximum", "minimum", "multiply", "negative", "nn.relu", "subtract", "where"),
    }
)


def _is_cheap(function: relay.Function) -> bool:
    calls = (e for e in post_order([function.body]) if isinstance(e, relay.Call))
    return all(calls_op(call, *_CHEAP) for call in calls)


_MANY_TERMS = 4


def _is_weight_gradient(term: Expr) -> bool:
    """Is it the product of two transposed matrices that the rule of ``nn.dense`` makes?"""
    return calls_op(term, "nn.dense") and all(
        calls_op(arg, "transpose") and arg.attrs.axes is None for arg in term.args
    )


def _joined_products(terms: list[Expr]) -> Expr:
    """Sum of many dy^T x as one product of all rows: the steps of a recurrent layer share their
    weights, and a product and a sum for each would be most of its backward pass."""
    factors = [[term.args[i].args[0] for term in terms] for i in (0, 1)]
    dy, x = (relay.transpose(relay.concatenate(rows, 0)) for rows in factors)
    known = [row for rows in factors for row in rows]
    (product,) = stamp([relay.nn.dense(dy, x)], known, source_of(terms[0]) or "gradient")
    return product


def _sum(terms: list[Expr]) -> Expr:
    """Rows that were taken from a table are added into what else its gradient consists of."""
    taken = [term for term in terms if calls_op(term, "dtr.take_gradient")]
    others = [term for term in terms if term not in taken] or [taken.pop(0)]
    total = others[0]
    for term in others[1:]:
        total = relay.add(total, term)
    for term in taken:
        known = [*others, total, *term.args]
        (total,) = stamp([take_gradient_onto(total, term)], known, source_of(term) or "gradient")
    return total


class _Sweep:
    """The backward sweep: adjoints of each expression, collected until its producer is reached."""

    def __init__(self, needed: set[Expr], control_flow: Callable[[Adjoint], list[Expr | None]]):
        self.needed = needed
        self.control_flow = control_flow
        self.again = ResultsAgain()
        # Per expression and tuple field (0 for tensors), in the order in which the backward
        # pass computes them: the sum then consumes the oldest first, and each can die at once.
        self.parts: dict[Expr, dict[int, list[Expr]]] = {}

    def add(self, expr: Expr, part: Expr, field: int = 0) -> None:
        self.parts.setdefault(expr, {}).setdefault(field, []).append(part)

    def total(self, expr: Expr, field: int = 0) -> Expr | None:
        terms = self.parts.get(expr, {}).get(field)
        if not terms:
            return None
        if len(terms) >= _MANY_TERMS and all(map(_is_weight_gradient, terms)):
            return _joined_products(terms)
        return _sum(terms)

    def visit(self, expr: Expr) -> None:
        if expr not in self.parts:
            return
        if isinstance(expr, relay.Call):
            self._visit_call(expr)
        elif isinstance(expr, relay.TupleGetItem):
            dy = self.total(expr)
            assert dy is not None
            self.add(children(expr)[0], dy, expr.index)
        elif isinstance(expr, relay.Tuple):
            for i, field in enumerate(children(expr)):
                dy = self.total(expr, i)
                if dy is not None and field in self.needed:
                    self.add(field, dy)

    def _visit_call(self, call: relay.Call) -> None:
        rule = self.control_flow if isinstance(called(call), relay.Var) else _rule(call)
        args = arguments(call)
        count = 1 if is_tensor(call) else len(call.checked_type.fields)
        outputs = [self.total(call, i) for i in range(count)]
        needs = [arg in self.needed for arg in args]
        seen = self.again.operands(call) if calls_op(call, "nn.dense") else call
        grads = rule(Adjoint(seen, outputs, needs))
        terms = [t for dy in self.parts[call].values() for t in dy]
        # A joined product has a source already; what is below it must not be stamped again.
        known = [
            call,
            *args,
            *seen.args,
            *terms,
            *(dy for dy in outputs if dy is not None and source_of(dy)),
        ]
        pairs = [
            (arg, dx)
            for arg, dx, need in zip(args, grads, needs, strict=True)
            if need and dx is not None
        ]
        dxs = stamp([dx for _, dx in pairs], known, f"{source_of(call) or op_name(call)} gradient")
        for (arg, _), dx in zip(pairs, dxs, strict=True):
            self._deliver(arg, dx)

    def _deliver(self, arg: Expr, dx: Expr) -> None:
        """Gradients of a tuple operand (concatenate) come as a tuple: one part per field."""
        if isinstance(dx, relay.Tuple):
            for i, part in enumerate(dx.fields):
                self.add(arg, part, i)
        else:
            self.add(arg, dx)


def gradients(output: Expr, seed: Expr, wrt: Sequence[relay.Var]) -> list[Expr | None]:
    """Gradients of a tensor with respect to variables.

    ``output`` is a typed expression in graph form with static shapes, ``seed`` the adjoint of it
    (of its shape and dtype). Returns, per variable of ``wrt``, an expression of the variable's
    shape and dtype that shares subexpressions with ``output``, or None where the output does not
    depend on it. Nothing is built for what leads to no variable. The result is not yet typed and
    may hold composites. Raises ModelError for an op without a rule.
    """
    return pullback([output], [seed], wrt, _no_control_flow)


def pullback(
    outputs: Sequence[Expr],
    seeds: Sequence[Expr | None],
    wrt: Sequence[relay.Var],
    control_flow: Callable[[Adjoint], list[Expr | None]],
    progress: Progress | None = None,
) -> list[Expr | None]:
    """As :func:`gradients` for several outputs, each with its adjoint or None; ``control_flow``
    is the rule of calls of control flow."""
    order = post_order(outputs)
    needed = mark_needed(order, set(wrt))
    sweep = _Sweep(needed, control_flow)
    for output, seed in zip(outputs, seeds, strict=True):
        if output in needed and seed is not None:
            sweep.add(output, seed)
    for expr in counted(order[::-1], "differentiating", progress):
        if expr in needed:
            sweep.visit(expr)
    return [sweep.total(variable) for variable in wrt]


def _no_control_flow(adjoint: Adjoint) -> list[Expr | None]:
    raise ModelError(f"control flow ({op_name(adjoint.call)}) has no gradient here")
