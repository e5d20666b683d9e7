"""Results that the backward pass computes again instead of keeping.

A normalization keeps its input and its statistics for its own gradient. Its result is one
multiplication and one addition away from these, so what needs the result again, the weight
gradient of a product or the backward kernel of an elementwise formula, computes it again: a tensor
of the input's size less to keep, for a pass over it that a fused formula does not even notice
(as in in-place activated batch normalization; Rota Bulo et al., CVPR 2018).
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relay

from ..relay_graph import Expr, calls_op, infer_local, rebuild, source_of, stamp
from .composite import composite_name
from .rules import RESULT_AGAIN

_VIEWS = ("reshape", "transpose", "expand_dims", "squeeze", "nn.batch_flatten")


class ResultsAgain:
    """Operands of forward calls as the backward pass is to see them."""

    def __init__(self) -> None:
        self.shared: dict[Expr, Expr] = {}

    def for_formula(self, call: relay.Call) -> relay.Call:
        """An elementwise call on fresh copies, each for one fused kernel."""
        return _with_operands(call, [_again(arg) or arg for arg in call.args])

    def for_product(self, call: relay.Call) -> relay.Call:
        """A matrix product on copies that all products of one operand share."""
        return _with_operands(call, [self._shared(arg) for arg in call.args])

    def _shared(self, arg: Expr) -> Expr:
        if arg not in self.shared:
            self.shared[arg] = _again(arg) or arg
        return self.shared[arg]


def _with_operands(call: relay.Call, args: list[Expr]) -> relay.Call:
    if all(new.same_as(old) for new, old in zip(args, call.args, strict=True)):
        return call
    return infer_local(relay.Call(call.op, args, call.attrs, call.type_args, call.span))


def _again(arg: Expr) -> Expr | None:
    """A copy, typed and with a source, of a cheap result or of views of one; None for others."""
    views = []
    base = arg
    while calls_op(base, *_VIEWS):
        views.append(base)
        base = base.args[0]
    if not isinstance(base, relay.TupleGetItem) or base.index != 0:
        return None
    call = base.tuple_value
    formula = _formula(call)
    if formula is None:
        return None
    copy = formula(call)
    for view in reversed(views):
        copy = rebuild(view, {view.args[0]: copy}.__getitem__)
    (copy,) = stamp([copy], [call, *call.args], f"{source_of(call) or 'normalization'} gradient")
    return infer_local(copy)


def _formula(call: Expr) -> Callable[[relay.Call], Expr] | None:
    return RESULT_AGAIN.get(composite_name(call) or "") if isinstance(call, relay.Call) else None
