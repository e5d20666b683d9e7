"""ONNX sequences of tensors.

A sequence is no value of a program. Where the number of its tensors is known, it is these tensors
(``items``); what a Loop appends, a tensor in each iteration, is one tensor of all of them
(``rows``). So sequences are differentiated, evicted and recomputed as any tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from tvm import relay

from ..relay_graph import Expr, infer_local, is_dynamic, shape_of
from .node import Node
from .registry import converter
from .shape import pieces

if TYPE_CHECKING:
    from .subgraph import SubgraphImporter


@dataclass(eq=False)
class TensorSequence:
    """``items`` in order, then one more for each row of ``rows``, if there are any.

    carried: it is what a Loop carries, as its body sees it. read: it was used for more than to be
    passed on and appended to. appended: of a sequence made of a carried one, what came behind it.
    """

    items: list[Expr]
    rows: Expr | None = None
    carried: bool = False
    read: bool = False
    base: TensorSequence | None = None
    appended: list[Expr] = field(default_factory=list)

    @property
    def tensors(self) -> list[Expr]:
        return [*self.items, *([] if self.rows is None else [self.rows])]

    def mapped(self, change: Callable[[Expr], Expr]) -> TensorSequence:
        """The same with each tensor replaced."""
        rows = None if self.rows is None else change(self.rows)
        appended = [change(e) for e in self.appended]
        return TensorSequence(
            [change(e) for e in self.items], rows, base=self.base, appended=appended
        )

    def mark_read(self) -> None:
        """Also what it was made of: where a Loop appends to it, its length is not known."""
        at: TensorSequence | None = self
        while at is not None:
            at.read, at = True, at.base


def _known(node: Node, i: int, seq: TensorSequence, what: str) -> int:
    """The constant position that operand ``i`` gives, as a number of 0 or more."""
    data = node.known(i)
    if data is None:
        raise node.error(
            f"the position ('{node.proto.input[i]}') depends on the model's input; {what} at a "
            "constant position, or use a tensor and Gather"
        )
    count = len(seq.items)
    at = int(np.ravel(data)[0])
    if not -count <= at < count + (node.op == "SequenceInsert"):
        raise node.error(f"position {at} is outside of a sequence of {count} tensors")
    return at + count if at < 0 else at


def _all_known(node: Node, seq: TensorSequence, what: str) -> TensorSequence:
    """A sequence that will be read; the number of its tensors must be known."""
    seq.mark_read()
    if seq.rows is not None:
        raise node.error(
            f"'{node.proto.input[0]}' has as many tensors as a loop had iterations; {what} such a "
            "sequence is not supported: concatenate it (ConcatFromSequence) and use the tensor"
        )
    return seq


@converter("SequenceEmpty")
def sequence_empty(node: Node) -> list[TensorSequence]:
    return [TensorSequence([])]


@converter("SequenceConstruct")
def sequence_construct(node: Node) -> list[TensorSequence]:
    return [TensorSequence([node.tensor(i) for i in range(node.operand_count)])]


@converter("SequenceInsert")
def sequence_insert(node: Node) -> list[TensorSequence]:
    seq, new = node.sequence(0), node.tensor(1)
    if not node.has(2) and seq.rows is None:
        base = seq if seq.carried else seq.base
        behind = [*seq.appended, new] if base is not None else []
        return [TensorSequence([*seq.items, new], base=base, appended=behind)]
    _all_known(node, seq, "inserting into")
    at = len(seq.items) if not node.has(2) else _known(node, 2, seq, "insert")
    return [TensorSequence([*seq.items[:at], new, *seq.items[at:]])]


@converter("SequenceErase")
def sequence_erase(node: Node) -> list[TensorSequence]:
    seq = _all_known(node, node.sequence(0), "erasing from")
    at = _known(node, 1, seq, "erase") if node.has(1) else len(seq.items) - 1
    if at < 0:
        raise node.error("there is nothing to erase: the sequence is empty")
    return [TensorSequence([*seq.items[:at], *seq.items[at + 1 :]])]


@converter("SequenceAt")
def sequence_at(node: Node) -> Expr:
    seq = node.sequence(0, by_row=True)
    if seq.rows is None and node.known(1) is not None:
        seq.mark_read()
        return seq.items[_known(node, 1, seq, "read")]
    row = None if seq.rows is None or seq.items else node.row(seq.rows, 1)
    if row is not None:
        return row
    stacked = _stacked(node, _all_known(node, seq, "reading one tensor of"))
    count = len(seq.items)
    index = relay.reshape(relay.cast(node.tensor(1), "int64"), ())
    zero, size = relay.const(0, "int64"), relay.const(count, "int64")
    index = relay.where(relay.less(index, zero), index + size, index)
    return relay.take(stacked, relay.clip(index, 0, count - 1), axis=0, mode="fast")


@converter("SequenceLength")
def sequence_length(node: Node) -> Expr:
    seq = node.sequence(0)
    seq.mark_read()
    count = relay.const(len(seq.items), "int64")
    if seq.rows is None:
        return count
    shape = relay.shape_of(seq.rows, "int64")
    return relay.take(shape, relay.const(0, "int64"), mode="clip") + count


@converter("SplitToSequence")
def split_to_sequence(node: Node) -> list[TensorSequence]:
    x, axis = node.tensor(0), node.attr("axis", 0)
    keep = node.attr("keepdims", 1) or node.has(1)
    rank = len(x.checked_type.shape)
    if is_dynamic(x):
        each = np.ravel(node.constant(1, np.array(1)))
        if (
            axis % rank == 0
            and each.tolist() == [1]
            and np.ndim(node.constant(1, np.array(1))) == 0
        ):
            return [TensorSequence([], rows=relay.expand_dims(x, 1) if keep else x)]
        raise node.error("a tensor of open sizes can be split into its rows only: axis 0, size 1")
    shape = shape_of(x)
    sizes = _sizes(node, shape[axis % rank], axis)
    parts = list(pieces(x, sizes, axis % rank)) if len(sizes) > 1 else [x]
    if not keep:
        rest = [n for i, n in enumerate(shape) if i != axis % rank]
        parts = [relay.reshape(part, rest) for part in parts]
    return [TensorSequence([infer_local(part) for part in parts])]


def _sizes(node: Node, size: int, axis: int) -> list[int]:
    split = node.constant(1, np.array(1))
    if split.ndim == 0:
        each = int(split)
        return [min(each, size - at) for at in range(0, size, each)]
    sizes = [int(n) for n in split]
    if sum(sizes) != size:
        raise node.error(f"parts {sizes} do not add up to {size} on axis {axis}")
    return sizes


@converter("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Expr:
    seq = node.sequence(0)
    seq.mark_read()
    axis, stacks = node.attr("axis"), bool(node.attr("new_axis", 0))
    if seq.rows is None:
        if not seq.items:
            raise node.error("the sequence is empty; what its tensors would be is not known")
        join = relay.stack if stacks else relay.concatenate
        return join(seq.items, axis)
    stacked = _stacked(node, seq)
    rank = len(stacked.checked_type.shape)
    if stacks:
        return _moved(stacked, axis % rank)
    axis %= rank - 1
    if is_dynamic(stacked):
        raise node.error(
            "as many tensors as a loop has iterations can be joined along a new axis only "
            "(new_axis=1), where that number is not fixed"
        )
    count, *shape = shape_of(stacked)
    shape[axis] *= count
    return relay.reshape(_moved(stacked, axis), shape)


def _stacked(node: Node, seq: TensorSequence) -> Expr:
    """All tensors of the sequence as one, along a new first axis."""
    if seq.rows is None:
        forms = {(e.checked_type.dtype, str(e.checked_type.shape)) for e in seq.items}
        if len(forms) != 1:
            raise node.error("its tensors must have the same shape and type, and one must be there")
        return infer_local(relay.stack(seq.items, 0))
    if not seq.items:
        return seq.rows
    if is_dynamic(seq.rows):
        raise node.error(
            "the sequence held tensors before a loop of open length appended to it; append to an "
            "empty sequence (SequenceEmpty)"
        )
    return infer_local(relay.concatenate([infer_local(relay.stack(seq.items, 0)), seq.rows], 0))


def _moved(tensor: Expr, axis: int) -> Expr:
    """The first axis moved to ``axis``."""
    if axis == 0:
        return tensor
    order: list[int] = list(range(1, len(tensor.checked_type.shape)))
    order.insert(axis, 0)
    return infer_local(relay.transpose(tensor, order))


class Carried:
    """What a Loop carries: a tensor, or a sequence, each of whose tensors is a state.

    A sequence keeps the number of its tensors, or has one appended in each iteration, which are
    ``rows`` of the loop then.
    """

    def __init__(self, node: Node, name: str, value: Expr | TensorSequence) -> None:
        self.node, self.name, self.value = node, name, value
        self.is_sequence = isinstance(value, TensorSequence)
        self.initial: list[Expr] = value.items if self.is_sequence else [value]
        self.bound: TensorSequence | None = None
        self.rows: list[Expr] = []

    def bind(self, body: SubgraphImporter, name: str, states: Iterator[Expr]) -> None:
        """Gives the body its states, and the sequence made of them."""
        mine = [next(states) for _ in self.initial]
        if not self.is_sequence:
            body.bind(name, mine[0])
            return
        if self.value.rows is not None:
            raise self.node.error(
                f"'{self.name}' has as many tensors as a loop before it had iterations; a loop "
                "cannot carry that: concatenate it (ConcatFromSequence)"
            )
        self.bound = TensorSequence(mine, carried=True)
        body.bind_sequence(name, self.bound)

    def next(self, result: Expr | TensorSequence) -> list[Expr]:
        """The next states, from what the body gives."""
        if isinstance(result, TensorSequence) != self.is_sequence:
            raise self.node.error(f"'{self.name}' is a tensor before and a sequence after, or both")
        if not self.is_sequence:
            return [result]
        assert self.bound is not None
        if result.rows is None and len(result.items) == len(self.initial):
            return result.items
        if result.rows is not None or result.base is not self.bound or len(result.appended) != 1:
            raise self.node.error(
                f"the sequence '{self.name}' has {len(self.initial)} tensors before an iteration "
                f"and {len(result.items)} after it; supported are as many as before, or one "
                "appended in every iteration (SequenceInsert without a position)"
            )
        if self.bound.read:
            raise self.node.error(
                f"the loop appends to the sequence '{self.name}' and also reads it; carry what it "
                "reads as a tensor of its own"
            )
        (row,) = result.appended
        if is_dynamic(row):
            raise self.node.error(
                f"a tensor of open sizes is appended to '{self.name}'; all must have one shape"
            )
        self.rows = [row]
        return self.bound.items

    def after(self, states: Iterator[Expr]) -> Expr | TensorSequence:
        """What the loop gives, without its rows."""
        last = [next(states) for _ in self.initial]
        return TensorSequence(last) if self.is_sequence else last[0]
