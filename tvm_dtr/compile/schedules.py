"""Strategies that make TVM compile convolutions with the schedules of convolution.py.

They are registered for the target key "tvm_dtr", which only our targets carry: other users of TVM
in the process keep TVM's schedules.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te
from tvm.relay.op import OpStrategy
from tvm.relay.op.strategy import generic
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.utils import get_const_tuple

from .convolution import Geometry, convolution, is_supported, schedule_convolution

TARGET_KEY = "tvm_dtr"


def with_key(target: tvm.target.Target) -> tvm.target.Target:
    """The target under which compilation finds the schedules of this module."""
    return _with_keys(target, [TARGET_KEY, *_other_keys(target)])


def _other_keys(target: tvm.target.Target) -> list[str]:
    return [str(key) for key in target.keys if key != TARGET_KEY]


def _with_keys(target: tvm.target.Target, keys: list[str]) -> tvm.target.Target:
    return tvm.target.Target({**dict(target.export()), "keys": keys})


def _conv2d_geometry(attrs: Any, kernel: te.Tensor) -> Geometry:
    dilation, strides = get_const_tuple(attrs.dilation), get_const_tuple(attrs.strides)
    kernel_h, kernel_w = get_const_tuple(kernel.shape)[2:]
    reach = ((kernel_h - 1) * dilation[0] + 1, (kernel_w - 1) * dilation[1] + 1)
    pads = get_pad_tuple(get_const_tuple(attrs.padding), reach)
    return Geometry(attrs.groups, (1, 1), pads, strides, dilation, flipped=False)


def _conv2d_transpose_geometry(attrs: Any, kernel: te.Tensor) -> Geometry:
    """A transposed convolution is one of the spread input with the flipped kernel."""
    extents = get_const_tuple(kernel.shape)[2:]
    top, left, bottom, right = get_pad_tuple(get_const_tuple(attrs.padding), extents)
    more_h, more_w = get_const_tuple(attrs.output_padding)
    last_h, last_w = extents[0] - 1, extents[1] - 1
    pads = (last_h - top, last_w - left, last_h - bottom + more_h, last_w - right + more_w)
    spread = get_const_tuple(attrs.strides)
    return Geometry(attrs.groups, spread, pads, (1, 1), (1, 1), flipped=True)


def _register(strategy: Any, geometry_of: Any, name: str) -> None:
    def ours_or_tvms(attrs: Any, inputs: Any, out_type: Any, target: tvm.target.Target) -> Any:
        data, kernel = inputs
        plain = attrs.data_layout == "NCHW" and attrs.out_dtype in ("", "same", data.dtype)
        if plain and is_supported(data, geometry_of(attrs, kernel)):
            return _ours(geometry_of, name)
        tvms = _with_keys(target, _other_keys(target))
        with tvms:
            return strategy(attrs, inputs, out_type, tvms)

    strategy.register(TARGET_KEY)(ours_or_tvms)


def _ours(geometry_of: Any, name: str) -> OpStrategy:
    def compute(attrs: Any, inputs: Any, out_type: Any) -> list[te.Tensor]:
        data, kernel = inputs
        return [convolution(data, kernel, geometry_of(attrs, kernel))]

    def schedule(attrs: Any, outs: Any, target: tvm.target.Target) -> te.Schedule:
        with target:
            return schedule_convolution([outs] if isinstance(outs, te.Tensor) else list(outs))

    strategy = OpStrategy()
    strategy.add_implementation(compute, schedule, f"{name}.{TARGET_KEY}")
    return strategy


_register(generic.conv2d_strategy, _conv2d_geometry, "conv2d")
_register(generic.conv2d_transpose_strategy, _conv2d_transpose_geometry, "conv2d_transpose")
