"""ReLU that lets NaN through, as ONNX and PyTorch define it, in place of TOPI's.

TOPI's is max(x, 0), which LLVM turns into an instruction that answers 0 for NaN: a training run
that has diverged would look sound. Measured on 64x16x32x32 floats both take 0.13 ms.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tir, topi
from tvm.relay.op import op as op_registry
from tvm.target import override_native_generic_func

_ABOVE_DEFAULT = 11  # TVM registers its own at level 10


def _relu(x: te.Tensor) -> te.Tensor:
    zero = tir.const(0, x.dtype)
    return te.compute(
        x.shape,
        lambda *i: tir.Select(x(*i) < zero, zero, x(*i)),
        name="relu",
        tag=topi.tag.ELEMWISE,
    )


@override_native_generic_func("tvm_dtr.relu_strategy")
def _strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
    choice = op_registry.OpStrategy()
    choice.add_implementation(
        lambda attrs, inputs, out_type: [_relu(inputs[0])],
        lambda attrs, outs, target: _schedule(outs, target),
        name="relu.cpu",
    )
    return choice


def _schedule(outs: Any, target: Any) -> Any:
    with target:
        return topi.x86.schedule_injective(outs)


op_registry.register_strategy("nn.relu", _strategy, _ABOVE_DEFAULT)
