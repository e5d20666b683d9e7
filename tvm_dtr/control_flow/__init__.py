"""Control flow that depends on the data: branches and loops, differentiated and lowered to Relay.

In a step's graph a branch or a loop is one call of a named variable, whose meaning stands in a
table (``definitions``). Differentiation replaces the calls that carry gradients by augmented ones,
which also return their pullback, a closure (``reverse``). At the end every definition becomes a
recursive Relay function (``lower``), and the stock VM compiler takes over.
"""

from .definitions import Branch, Definitions, Graph, Loop, TreeFold
from .lower import lower_step
from .reverse import differentiate

__all__ = ["Branch", "Definitions", "Graph", "Loop", "TreeFold", "differentiate", "lower_step"]
