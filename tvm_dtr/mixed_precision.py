"""Mixed precision: float16 or bfloat16 operands, float32 sums, weights and optimizer state.

As autocasting elsewhere: matrix products and convolutions take operands rounded to the low type,
add up in float32 and give a result in the low type; what only moves or compares elements (reshapes,
relu, max pooling) stays in it, and so do a batch normalization and a sum of two tensors in it,
which are computed in float32; everything else, such as other normalizations, exponentials and
losses, is float32. The kernels multiply in float32, of which products of two low numbers are exact:
CPUs here have no arithmetic in the low types.

What the backward pass needs is kept in the low type: a widened copy is made anew for each op that
reads it, and so is a weight's rounded one.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relay
from tvm.ir import TensorType

from .autodiff.composite import composite, composite_name
from .errors import ModelError, UsageError
from .frontend import ImportedModel
from .optim import Optimizer
from .optim.accumulation import DYNAMIC, Gating
from .relay_graph import (
    Expr,
    calls_op,
    dtype_of,
    infer_local,
    post_order,
    rebuild,
    source_of,
    stamp,
)

LOW_TYPES = ("float16", "bfloat16")
_WIDE = "float32"
_PRODUCTS = frozenset({"nn.dense", "nn.batch_matmul", "nn.conv2d", "nn.conv2d_transpose", "conv3d"})
_KEEPS = frozenset(
    {
        *("reshape", "transpose", "expand_dims", "squeeze", "nn.batch_flatten", "broadcast_to"),
        *("nn.relu", "concatenate", "strided_slice"),
    }
)
_NARROWED = frozenset({"add", "nn.max_pool2d"})  # computed in float32, where all operands are low
_BIASES = frozenset({"nn.bias_add", "add"})


def make_gating(
    optimizer: Optimizer | None,
    accumulate: int,
    mixed_precision: str | None,
    loss_scale: float | str | None,
) -> Gating:
    """How updates are gated. Raises UsageError for choices that do not go together."""
    if mixed_precision is not None and mixed_precision not in LOW_TYPES:
        raise UsageError(
            f"mixed_precision {mixed_precision!r}: expected one of {', '.join(LOW_TYPES)}, or None"
        )
    if mixed_precision == "float16" and loss_scale is None and optimizer is not None:
        loss_scale = DYNAMIC
    gating = Gating(accumulate, loss_scale)
    if optimizer is None and (accumulate > 1 or loss_scale is not None):
        option = "accumulate" if accumulate > 1 else "loss_scale"
        raise UsageError(f"{option} needs an optimizer: without one every step gives gradients")
    return gating


def use_mixed_precision(model: ImportedModel, low: str) -> None:
    """Rewrites a float32 model's outputs and running statistics.

    Raises ModelError for a model in another type, or with control flow that depends on the data.
    """
    if model.control_flow:
        raise ModelError("mixed precision does not cover control flow that depends on the data")
    for name, array in model.state.items():
        if array.dtype.kind == "f" and str(array.dtype) != _WIDE:
            raise ModelError(
                f"mixed precision starts from a float32 model, but '{name}' is {array.dtype}; "
                "cast the model: dtype='float32' or --dtype float32"
            )
    running = model.running_updates
    roots = [*(e for _, e in model.outputs), *running.values()]
    new = [_wide(e) for e in _Rewriter(low).run(roots)]
    count = len(model.outputs)
    model.outputs = [(n, e) for (n, _), e in zip(model.outputs, new[:count], strict=True)]
    model.running_updates = dict(zip(running, new[count:], strict=True))


def repeat_casts(roots: list[Expr]) -> list[Expr]:
    """``roots`` with a cast of its own for each reader of a widened tensor, and of a weight or
    softmax in the low type, which are in memory in float32 anyway. Casts are fused with what reads
    them, or live as long as it runs; one shared by forward and backward pass would be kept.

    Weights are cast before they are transposed, for products read a transposed operand as it is.
    """
    table: dict[Expr, Expr] = {}
    for expr in post_order(roots):
        new = rebuild(expr, lambda child: _repeated(table[child]))
        inner = new.args[0] if _is_turned(new) else None
        table[expr] = inner.args[0] if inner is not None and _is_turned(inner) else new
    return [table[root] for root in roots]


def _repeated(expr: Expr) -> Expr:
    if not _is_repeated(expr):
        return expr
    source = _repeated(expr.args[0])
    if not _is_turned(source):
        return relay.Call(expr.op, [source], expr.attrs, expr.type_args, expr.span)
    cast = relay.Call(expr.op, source.args, expr.attrs, expr.type_args, expr.span)
    return relay.Call(source.op, [cast], source.attrs, source.type_args, source.span)


def _is_repeated(expr: Expr) -> bool:
    if not calls_op(expr, "cast"):
        return False
    if expr.attrs.dtype == _WIDE:
        return True
    source = expr.args[0]
    while calls_op(source, "reshape", "transpose"):
        source = source.args[0]
    kept = isinstance(source, relay.Var) or calls_op(source, "nn.softmax")
    return expr.attrs.dtype in LOW_TYPES and kept


def _is_turned(expr: Expr) -> bool:
    """Whether it is a transpose with all axes reversed, which undoes itself."""
    if not calls_op(expr, "transpose"):
        return False
    axes = expr.attrs.axes
    return not axes or [int(axis) for axis in axes] == [1, 0]


class _Rewriter:
    def __init__(self, low: str) -> None:
        self.low = low
        self.table: dict[Expr, Expr] = {}
        self.normalized: set[Expr] = set()  # batch normalizations of low tensors

    def run(self, roots: list[Expr]) -> list[Expr]:
        for expr in post_order(roots):
            self.table[expr] = self._visit(expr)
        return [self.table[root] for root in roots]

    def _visit(self, expr: Expr) -> Expr:
        if not isinstance(expr, relay.Call):
            new = infer_local(rebuild(expr, self.table.__getitem__))
            if isinstance(new, relay.TupleGetItem) and new.tuple_value in self.normalized:
                return _to(new, self.low) if new.index == 0 else new
            return new
        name = composite_name(expr) or expr.op.name
        args = [self.table[arg] for arg in expr.args]
        source = source_of(expr) or name
        if name in _PRODUCTS and {dtype_of(a) for a in args} <= {self.low, _WIDE}:
            new = self._product(name, expr, [_to(a, self.low) for a in args])
        elif name in _KEEPS and self._is_low(args[0]):
            new = _call(expr, args)
        elif name in _BIASES and self._is_low(args[0]) and isinstance(args[1], relay.Var):
            new = _call(expr, [args[0], _to(args[1], self.low)])
        else:
            new = _call(expr, [_wide(a) for a in args])
        new = _typed(new, args, source)
        if name in _NARROWED and all(self._is_low(a) for a in args):
            return _to(new, self.low)
        if name == "batch_norm" and self._is_low(args[0]):
            self.normalized.add(new)
        return new

    def _product(self, name: str, call: relay.Call, args: list[Expr]) -> Expr:
        """One op on low operands; its gradient is made of parts that read these alone."""

        def body(*operands: Expr) -> Expr:
            wide = [infer_local(relay.cast(infer_local(v), _WIDE)) for v in operands]
            return relay.cast(_call(call, wide), self.low)

        return composite(f"mixed_{name.removeprefix('nn.')}", args, body)

    def _is_low(self, expr: Expr) -> bool:
        types = expr.checked_type
        fields = [types] if isinstance(types, TensorType) else list(types.fields)
        return all(t.dtype == self.low for t in fields)


def _call(call: relay.Call, args: list[Expr]) -> relay.Call:
    return relay.Call(call.op, args, call.attrs, call.type_args, call.span)


def _wide(expr: Expr) -> Expr:
    return _each(expr, lambda e: _to(e, _WIDE))


def _to(expr: Expr, dtype: str) -> Expr:
    """A typed tensor of a floating-point type in another; what it is in already stays."""
    old = dtype_of(expr)
    if old == dtype or old not in (*LOW_TYPES, _WIDE):
        return expr
    return _typed(relay.cast(expr, dtype), [expr], source_of(expr) or "mixed precision")


def _each(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    if isinstance(expr.checked_type, TensorType):
        return change(expr)
    if isinstance(expr, relay.Tuple):
        fields = [change(field) for field in expr.fields]
        return infer_local(relay.Tuple(fields))
    return expr


def _typed(expr: Expr, known: list[Expr], source: str) -> Expr:
    (stamped,) = stamp([expr], known, source)
    for made in post_order([stamped], known=known):
        if made not in known:
            infer_local(made)
    return stamped
