"""Elementwise formulas that are written out op by op, as one composite each.

Exporters write gelu, silu or an affine map after a normalization as several nodes. Differentiated
one by one, each keeps an operand or its output for the backward pass. A cluster with one operand of
full size is differentiated from that operand alone: the rest is computed again, inside of the fused
backward kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relay

from ..relay_facts import arguments, name_of
from ..relay_graph import (
    Expr,
    ExprMap,
    children,
    is_tensor,
    post_order,
    rebuild,
    substitute,
    tensor_type,
)
from .composite import composite, composite_name, inline_composites

_KEEP_NOTHING = frozenset({"add", "subtract", "negative", "cast"})
_KEEP_OPERAND = frozenset({"abs", "cos", "erf", "log", "sin"})
_KEEP_RESULT = frozenset({"clip", "exp", "nn.relu", "rsqrt", "sigmoid", "sqrt", "tanh"})
_BY_OPERANDS = frozenset({"divide", "multiply", "power"})
# Composites of the front end, which keep their first operand; they join as what they consist of.
_COMPOSITES = frozenset(
    {
        *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "mish", "prelu", "selu", "shrink"),
        *("softplus", "softsign", "thresholdedrelu"),
    }
)
_ELEMENTWISE = _KEEP_NOTHING | _KEEP_OPERAND | _KEEP_RESULT | _BY_OPERANDS | _COMPOSITES
_MOST_MEMBERS = 16  # so that the backward pass of a cluster is one kernel, and this is linear
_WORTH_KEEPING_LESS = 2  # values that the ops of a cluster would keep, its result left out


def cluster_elementwise(roots: Sequence[Expr]) -> list[Expr]:
    """``roots`` (typed) with clusters as composites; the new calls are not typed yet."""
    order = post_order(roots)
    finder = _Finder(order, roots)
    clusters = {}
    for expr in reversed(order):
        found = finder.cluster_of(expr)
        if found is not None:
            clusters[expr] = found
    if not clusters:
        return list(roots)
    table = ExprMap()
    for expr in order:
        if expr in clusters:
            table[expr] = _as_composite(expr, clusters[expr], table)
        else:
            table[expr] = rebuild(expr, table.__getitem__)
    return [table[root] for root in roots]


def _is_full(expr: Expr, shape: tuple[int, ...]) -> bool:
    return is_tensor(expr) and tensor_type(expr)[0] == shape


def _name(call: relay.Call) -> str:
    return composite_name(call) or name_of(call)


class _Finder:
    def __init__(self, order: Sequence[Expr], roots: Sequence[Expr]) -> None:
        self.users: dict[Expr, list[Expr]] = {}
        self.taken: set[Expr] = set()
        self.roots = set(roots)
        for expr in order:
            for operand in children(expr):
                self.users.setdefault(operand, []).append(expr)

    def _can_join(self, expr: Expr, shape: tuple[int, ...]) -> bool:
        return (
            isinstance(expr, relay.Call)
            and expr not in self.taken
            and _name(expr) in _ELEMENTWISE
            and _is_full(expr, shape)
        )

    def cluster_of(self, end: Expr) -> list[Expr] | None:
        """Operands of the cluster that ends in ``end``, if it keeps fewer values than its ops."""
        if not isinstance(end, relay.Call) or not is_tensor(end):
            return None
        shape = tensor_type(end)[0]
        if len(shape) < 2 or not self._can_join(end, shape):
            return None
        members, inside, at = [end], {end}, 0
        while at < len(members) < _MOST_MEMBERS:
            for arg in arguments(members[at]):
                alone = all(user in inside for user in self.users[arg])
                if (
                    alone
                    and arg not in inside
                    and arg not in self.roots
                    and self._can_join(arg, shape)
                ):
                    members.append(arg)
                    inside.add(arg)
            at += 1
        operands = dict.fromkeys(
            arg
            for call in reversed(members)
            for arg in arguments(call)
            if arg not in inside and not isinstance(arg, relay.Constant)
        )
        full = [arg for arg in operands if _is_full(arg, shape)]
        kept = {value for call in members for value in _kept_by(call) if _is_full(value, shape)}
        if len(full) != 1 or len(kept - {end}) < _WORTH_KEEPING_LESS:
            return None
        self.taken.update(members)
        return list(operands)


def _kept_by(call: relay.Call) -> list[Expr]:
    """What the gradient rule of an elementwise op keeps for the backward pass."""
    name = _name(call)
    if name in _KEEP_NOTHING:
        return []
    if name not in _BY_OPERANDS:
        return [call if name in _KEEP_RESULT else arguments(call)[0]]
    a, b = arguments(call)
    a_varies, b_varies = (not isinstance(arg, relay.Constant) for arg in (a, b))
    if name == "multiply":
        return [*([a] if b_varies else []), *([b] if a_varies else [])]
    if name == "divide":
        return [b, call] if b_varies else []
    return [a, b, call] if b_varies else [a]


def _as_composite(end: relay.Call, operands: list[Expr], table: ExprMap) -> relay.Call:
    def body(*variables: Expr) -> Expr:
        bound = substitute([end], dict(zip(operands, variables, strict=True)))
        return inline_composites(bound)[0]

    call = composite("elementwise", operands, body)
    return relay.Call(call.op, [table[arg] for arg in operands], span=end.span)
