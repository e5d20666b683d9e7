"""Results that matrix products of the backward pass read again instead of kept copies.

A normalization keeps its input and its statistics for its own gradient. Its result is one
multiplication and one addition away from these, so the weight gradient of a product that follows
computes it again: a tensor of the input's size less to keep, for one pass over it. (As in
in-place activated batch normalization; Rota Bulo et al., CVPR 2018. What elementwise kernels read
is left to compile/recompute.py, which needs no pass of its own for it.)
"""

from __future__ import annotations

from tvm import relay

from ..relay_facts import arguments, children
from ..relay_graph import Expr, calls_op, infer_local, source_of, stamp
from .composite import composite_name
from .rules import RESULT_AGAIN

# Ops between a result and the product: free, or done again in the same kernel.
_FOLLOW = ("reshape", "transpose", "expand_dims", "squeeze", "nn.batch_flatten", "cast")


class ResultsAgain:
    """Products of the forward pass as the backward pass is to see them. All that read one result
    share one copy."""

    def __init__(self) -> None:
        self.copies: dict[relay.Call, Expr] = {}

    def operands(self, product: relay.Call) -> relay.Call:
        """The product of copies, where its operands are cheap results or follow from such."""
        args = [self._again(arg) for arg in arguments(product)]
        if all(new.same_as(old) for new, old in zip(args, arguments(product), strict=True)):
            return product
        return infer_local(
            relay.Call(product.op, args, product.attrs, product.type_args, product.span)
        )

    def _again(self, arg: Expr) -> Expr:
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
        if call not in self.copies:
            self.copies[call] = _copy(call)
        value = self.copies[call]
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
