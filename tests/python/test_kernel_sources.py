"""Kernels of programs with control flow lead back to the ONNX nodes that they may be of."""

import pytest

import tvm_dtr
from tvm_dtr.models.tree_lstm import tree_lstm
from tvm_dtr.trace.header import make_header
from tvm_dtr.trace.naming import Naming


@pytest.fixture(scope="module")
def program():
    model = tree_lstm(batch=64, seed=0, features=8, width=16, classes=3)
    return tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01))


def sources(program, part):
    return {
        source
        for kernel in program.graph.kernels
        if part in kernel.name
        for source in kernel.sources
    }


def test_products_are_of_their_nodes(program):
    products = sources(program, "dense") | sources(program, "matmul")
    for node in ("'leaf.product' (MatMul)", "'node.product' (MatMul)", "'fc' (Gemm)"):
        assert {f"node {node}", f"node {node} gradient"} <= products


def test_updates_are_of_their_parameters(program):
    updates = {text for text in sources(program, "subtract") if text.startswith("update of")}
    assert updates == {f"update of '{name}'" for name in program.parameter_names}


def test_a_kernel_that_two_nodes_share_names_both(program):
    tanh = next(k for k in program.graph.kernels if k.name.endswith("fused_tanh"))
    assert {"node 'leaf.cell.out.tanh' (Tanh)", "node 'node.cell.out.tanh' (Tanh)"} <= set(
        tanh.sources
    )


def test_they_survive_a_file_and_name_the_calls_of_a_trace(program, tmp_path):
    path = tmp_path / "tree.tdtr"
    program.save(path)
    loaded = tvm_dtr.load(path)
    assert loaded.graph.kernels == program.graph.kernels
    header = make_header(tvm_dtr.VirtualMachine(loaded), "tree")
    naming = Naming(header)
    product = next(k for k in program.graph.kernels if "node 'fc' (Gemm)" in k.sources)
    source = naming.call(-1, header["kernels"].index(product.name))
    assert (source.node, source.op, source.layer) == ("fc", "Gemm", "fc")
