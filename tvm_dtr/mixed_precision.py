"""Mixed precision: float16 or bfloat16 operands, float32 sums, weights and optimizer state.

As autocasting elsewhere: matrix products and convolutions take operands rounded to the low type,
add up in float32 and give a result in the low type; what only moves or compares elements (reshapes,
relu, max pooling) stays in it; everything else, such as normalizations, exponentials, losses and
residual sums, is float32. The kernels read and write the low type and multiply in float32, of which
products of two low numbers are exact: CPUs here have no arithmetic in the low types. The backward
pass keeps the operands in the low type.
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
from .relay_graph import Expr, dtype_of, infer_local, post_order, rebuild, source_of, stamp

LOW_TYPES = ("float16", "bfloat16")
_WIDE = "float32"
_PRODUCTS = frozenset({"nn.dense", "nn.batch_matmul", "nn.conv2d", "nn.conv2d_transpose", "conv3d"})
_KEEPS = frozenset(
    {
        *("reshape", "transpose", "expand_dims", "squeeze", "nn.batch_flatten", "broadcast_to"),
        *("nn.relu", "nn.max_pool2d", "concatenate", "strided_slice"),
    }
)
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


class _Rewriter:
    def __init__(self, low: str) -> None:
        self.low = low
        self.table: dict[Expr, Expr] = {}

    def run(self, roots: list[Expr]) -> list[Expr]:
        for expr in post_order(roots):
            self.table[expr] = self._visit(expr)
        return [self.table[root] for root in roots]

    def _visit(self, expr: Expr) -> Expr:
        if not isinstance(expr, relay.Call):
            return infer_local(rebuild(expr, self.table.__getitem__))
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
        return _typed(new, args, source)

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
