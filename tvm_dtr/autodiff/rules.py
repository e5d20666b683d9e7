"""The table of gradient rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relay

from ..relay_graph import Expr


@dataclass(frozen=True)
class Adjoint:
    """What a rule is given.

    ``call`` is the forward call, typed; as an expression it is the op's output, so a rule that
    writes ``call`` keeps the output alive and one that writes ``call.args[i]`` keeps an input.
    ``outputs`` are the adjoints of its results (one for a plain op, one or None per field for an
    op with a tuple result). ``needs[i]`` says whether operand i needs a gradient at all.
    """

    call: relay.Call
    outputs: Sequence[Expr | None]
    needs: Sequence[bool]

    @property
    def output(self) -> Expr:
        """Adjoint of the only result."""
        (dy,) = self.outputs
        assert dy is not None
        return dy


# A rule returns one gradient, of the operand's shape and dtype, or None per operand.
Rule = Callable[[Adjoint], list[Expr | None]]

GRADIENTS: dict[str, Rule] = {}

# Ops whose result carries no gradient to any operand: integers, booleans, piecewise constants.
CONSTANT_OPS: set[str] = set()

# Composites whose first result follows from their operands and other results in one elementwise
# pass, and how: what the backward pass does not keep.
RESULT_AGAIN: dict[str, Callable[[relay.Call], Expr]] = {}


def gradient(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for Relay ops or composites."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in GRADIENTS, name
            GRADIENTS[name] = rule
        return rule

    return register
