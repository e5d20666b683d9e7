"""Composite ops: small Relay functions that are differentiated as one op.

The frontend wraps formulas whose best gradient is not the chain rule of their parts (batch
normalization, softmax cross entropy) into a call of a function with a name. The gradient rule of
that name sees the call, its operands and all its results, so that what the body computed on the
way (a mean, a log-sum-exp) is shared rather than recomputed. A composite without a rule is
differentiated part by part from its operands alone: elementwise formulas (gelu, elu) keep nothing
else. After differentiation the bodies are spliced in place, where kernel fusion sees plain ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relay

from ..relay_facts import called, children, remembered
from ..relay_graph import Expr, ExprMap, post_order, rebuild, substitute, tensor_type

NAME_ATTRIBUTE = "dtr_composite"


def composite(
    name: str, args: list[Expr], body: Callable[..., Expr], **attributes: Any
) -> relay.Call:
    """Call of a composite op.

    ``args`` are typed tensor expressions; ``body(*vars)`` builds the result from fresh variables
    of the same types; ``attributes`` (ints, floats, strings, lists of ints) are for the rule.
    """
    variables = []
    for i, arg in enumerate(args):
        shape, dtype = tensor_type(arg)
        variable = relay.var(f"{name}_{i}", shape=shape, dtype=dtype)
        variables.append(variable)
    function = relay.Function(variables, body(*variables)).with_attr(NAME_ATTRIBUTE, name)
    for key, value in attributes.items():
        function = function.with_attr(key, value)
    return relay.Call(function, args)


def composite_name(call: relay.Call) -> str | None:
    """Name of the composite that ``call`` calls; None for a plain op."""
    function = called(call)
    return remembered("composite", function, _name) if _is_composite(function) else None


def _is_composite(function: Expr) -> bool:
    return isinstance(function, relay.Function) and function.attrs is not None


def _name(function: relay.Function) -> str:
    return str(function.attrs[NAME_ATTRIBUTE])


def inline_composites(roots: list[Expr]) -> list[Expr]:
    """``roots`` with each composite call replaced by its body."""
    table = ExprMap()
    for expr in post_order(roots):
        new = rebuild(expr, table.__getitem__)
        if isinstance(new, relay.Call) and composite_name(new) is not None:
            function = new.op
            binding = dict(zip(function.params, new.args, strict=True))
            (new,) = substitute([function.body], binding, new.span)
        elif isinstance(new, relay.TupleGetItem) and isinstance(children(new)[0], relay.Tuple):
            new = children(children(new)[0])[new.index]
        table[expr] = new
    return [table[root] for root in roots]
