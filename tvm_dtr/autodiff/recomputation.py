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

from ..relay_facts import arguments, children
from ..relay_graph import Expr, calls_op, infer_local, source_of, stamp
from .composite import composite_name
from .rules import RESULT_AGAIN

# Ops that follow a result into its users: free, or done again in the same kernel.
_FOLLOW = ("reshape", "transpose", "expand_dims", "squeeze", "nn.batch_flatten", "cast")


class ResultsAgain:
    """Operands of forward calls as the backward pass is to see them."""

    def __init__(self) -> None:
        self.shared: dict[relay.Call, Expr] = {}

    def for_formula(self, call: relay.Call) -> relay.Call:
        """An elementwise call on fresh copies, each for one fused kernel."""
        return _with_operands(call, [_again(arg, _copy) for arg in arguments(call)])

    def for_product(self, call: relay.Call) -> relay.Call:
        """A matrix product on copies that all products of one result share."""
        return _with_operands(call, [_again(arg, self._shared) for arg in arguments(call)])

    def _shared(self, call: relay.Call) -> Expr:
        if call not in self.shared:
            self.shared[call] = _copy(call)
        return self.shared[call]


def _with_operands(call: relay.Call, args: list[Expr]) -> relay.Call:
    if all(new.same_as(old) for new, old in zip(args, arguments(call), strict=True)):
        return call
    return infer_local(relay.Call(call.op, args, call.attrs, call.type_args, call.span))


def _again(arg: Expr, copy: Callable[[relay.Call], Expr]) -> Expr:
    """``arg`` made from a copy, if it is a cheap result or follows from one; else itself."""
    following = []
    base = arg
    while calls_op(base, *_FOLLOW):
        following.append(base)
        base = arguments(base)[0]
    if not isinstance(base, relay.TupleGetItem) or base.index != 0:
        return arg
    call = children(base)[0]
    if not isinstance(call, relay.Call) or composite_name(call) not in RESULT_AGAIN:
        return arg
    value = copy(call)
    for follower in reversed(following):
        value = infer_local(
            relay.Call(follower.op, [value], follower.attrs, follower.type_args, follower.span)
        )
    return value


def _copy(call: relay.Call) -> Expr:
    """The first result of a normalization once more, typed and with a source."""
    formula = RESULT_AGAIN[composite_name(call) or ""]
    source = f"{source_of(call) or 'normalization'} gradient"
    (again,) = stamp([formula(call)], [call, *arguments(call)], source)
    return infer_local(again)
