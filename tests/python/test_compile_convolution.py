"""tvm_dtr/compile/convolution.py, schedules.py: the bits of TVM's schedules, less workspace."""

import numpy as np
import pytest
import tvm
from random_steps import as_step, run_stock, same_bits
from tvm import relay

from tvm_dtr.compile import compile_step
from tvm_dtr.compile.codegen import CONFIG, OPT_LEVEL, quiet
from tvm_dtr.compile.schedules import TARGET_KEY, with_key

IMAGES = 8


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", "none")


def conv2d(channels, size, out, kernel, **attrs):
    x = relay.var("x", shape=(IMAGES, channels, *size))
    w = relay.var("w", shape=(out, channels, *kernel))
    return [x, w], relay.nn.conv2d(x, w, **attrs)


def transposed(channels, size, out, kernel, **attrs):
    x = relay.var("x", shape=(IMAGES, channels, *size))
    w = relay.var("w", shape=(channels, out, *kernel))
    y = relay.nn.conv2d_transpose(x, w, channels=out, kernel_size=kernel, **attrs)
    return [x, w], y


CASES = {
    "3x3": conv2d(16, (16, 16), 32, (3, 3), padding=(1, 1)),
    "odd sizes": conv2d(3, (9, 7), 5, (3, 2)),
    "stride": conv2d(16, (15, 16), 16, (3, 3), padding=(1, 1), strides=(2, 2)),
    "uneven padding": conv2d(4, (8, 8), 8, (3, 3), padding=(0, 1, 2, 0), strides=(1, 2)),
    "dilated": conv2d(4, (12, 12), 8, (3, 3), padding=(2, 2), dilation=(2, 2)),
    "1x1": conv2d(32, (8, 8), 16, (1, 1), strides=(2, 2)),
    "weight gradient": conv2d(64, (16, 16), 8, (16, 16), padding=(1, 1)),
    "transposed": transposed(16, (8, 8), 16, (3, 3), padding=(1, 1)),
    "transposed stride": transposed(
        8, (8, 8), 16, (3, 3), padding=(1, 1), strides=(2, 2), output_padding=(1, 1)
    ),
    "transposed 1x1": transposed(32, (4, 5), 6, (1, 1), strides=(2, 3), output_padding=(1, 2)),
}


def both(params, results):
    """The program, and the results of ours and of TVM's schedules."""
    step = as_step(relay.Function(params, relay.Tuple(results)))
    program = compile_step(step)
    context = tvm.transform.PassContext(OPT_LEVEL, disabled_pass=["AlterOpLayout"], config=CONFIG)
    with quiet(), context:
        module = tvm.IRModule.from_expr(step.function)
        stock = relay.vm.compile(module, program.target)
    return program, run_stock(program.executable, step), run_stock(stock, step)


@pytest.mark.parametrize("name", CASES)
def test_same_bits(name):
    params, y = CASES[name]
    program, found, expected = both(params, [y])
    assert same_bits(found, expected)
    assert TARGET_KEY not in program.target


def test_workspace_is_of_one_image():
    params, y = conv2d(16, (32, 32), 16, (3, 3), padding=(1, 1))
    program, _, _ = both(params, [y])
    (kernel,) = program.graph.kernels
    packed_image, packed_kernel = 16 * 34 * 34 * 4, 16 * 16 * 9 * 4
    assert kernel.thread_workspace_bytes == packed_image
    serial = kernel.workspace_bytes - tvm.runtime.num_threads() * kernel.thread_workspace_bytes
    assert serial == packed_kernel


@pytest.mark.parametrize("groups", [2, 8])
def test_other_groups_keep_tvms_schedule(groups):
    x, w = relay.var("x", shape=(8, 8, 6, 6)), relay.var("w", shape=(8, 8 // groups, 3, 3))
    _, found, expected = both([x, w], [relay.nn.conv2d(x, w, groups=groups, padding=(1, 1))])
    assert same_bits(found, expected)


def test_elementwise_tail():
    params, y = conv2d(16, (8, 8), 16, (3, 3), padding=(1, 1))
    bias = relay.var("bias", shape=(16,))
    tail = relay.nn.relu(relay.nn.bias_add(y, bias)) * relay.sigmoid(y)
    program, found, expected = both([*params, bias], [tail])
    assert len(program.graph.ops) == 1
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tail", ["broadcast", "expand_dims"])
def test_tail_of_another_shape(tail):
    """FuseOps does not make such functions; others may."""
    (x, w), y = conv2d(16, (2, 2), 8, (2, 2))
    other = relay.var("other", shape=(IMAGES, 8, 6, 6))
    z = y + other if tail == "broadcast" else relay.expand_dims(y, 0) + relay.const(1.0)
    primitive = relay.Function([x, w, other], z).with_attr("Primitive", 1)
    params = [relay.var(p.name_hint, p.type_annotation) for p in primitive.params]
    program, found, expected = both(params, [relay.Call(primitive, params)])
    assert len(program.graph.ops) == 1
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-6)


def test_few_images_keep_tvms_schedule():
    x, w = relay.var("x", shape=(2, 16, 8, 8)), relay.var("w", shape=(16, 16, 3, 3))
    program, found, expected = both([x, w], [relay.nn.conv2d(x, w, padding=(1, 1))])
    assert same_bits(found, expected)
    assert program.graph.kernels[0].workspace_bytes > 2 * 16 * 8 * 8 * 4


def test_other_targets_are_left_alone():
    target = tvm.target.Target("llvm")
    assert TARGET_KEY not in list(target.keys)
    assert [str(k) for k in with_key(target).keys] == [TARGET_KEY, "cpu"]
    assert str(with_key(with_key(target))) == str(with_key(target))
