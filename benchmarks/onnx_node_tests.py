"""Forward values on the node tests of the onnx package, for the ops that train.

    python benchmarks/onnx_node_tests.py [PREFIX ...]

Each test is imported as a user would have it: what must be fixed (axes, shapes, ratios) is given as
an initializer, the rest is fed. Writes results/onnx_node_tests.json and .md: per op how many tests
agree, and the cause of each that does not.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from tvm import relay
from tvm.contrib import graph_executor

from tvm_dtr.autodiff import inline_composites
from tvm_dtr.compile.codegen import quiet
from tvm_dtr.errors import ModelError
from tvm_dtr.frontend import CONVERTERS, import_model
from tvm_dtr.frontend.importer import ImportedModel
from tvm_dtr.relay_graph import infer_function

# Their tests hold sequences and optional values too; tests/python/test_control_flow.py has others.
CONTROL_FLOW = {"If", "Loop", "Scan"}
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
RESULTS = Path(__file__).parent / "results"

# Causes of what is refused or differs on purpose, by what the message or the test's name says.
CAUSES = [
    (r"^test_training_dropout", "other random numbers than NumPy's"),
    (r"must be a constant", "an operand that must be fixed is computed by the model"),
    (r"needs sizes >= 1|is empty|no element", "tensors without elements"),
    (r"STRING|type string", "strings"),
    (r"is no tensor, but", "sequences that go into the model or come out of it"),
    (r"FLOAT8|FLOAT4|INT4|float8|float4|int4", "types of fewer than 8 bits, or float8"),
    (r"BFLOAT16|bfloat16", "bfloat16 must be cast"),
]


def load(folder: Path) -> tuple[onnx.ModelProto, list[np.ndarray], list[np.ndarray]]:
    model = onnx.load(folder / "model.onnx")
    for info in [*model.graph.input, *model.graph.output]:
        if not info.type.HasField("tensor_type"):
            raise ModelError(f"'{info.name}' is no tensor, but {info.type.WhichOneof('value')}")
    data = folder / "test_data_set_0"

    def arrays(kind: str, infos) -> list[np.ndarray]:
        found = []
        for i in range(len(infos)):
            tensor = onnx.TensorProto()
            tensor.ParseFromString((data / f"{kind}_{i}.pb").read_bytes())
            found.append(numpy_helper.to_array(tensor))
        return found

    return model, arrays("input", model.graph.input), arrays("output", model.graph.output)


def fix(model: onnx.ModelProto, feeds: dict[str, np.ndarray], name: str) -> None:
    """Turns an input into an initializer."""
    model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    kept = [info for info in model.graph.input if info.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def fix_inputs(
    model: onnx.ModelProto, inputs: list[np.ndarray], training: bool
) -> tuple[ImportedModel, dict[str, np.ndarray]]:
    """Turns inputs into initializers while the import asks for constants; what is left to feed."""
    feeds = {i.name: a for i, a in zip(model.graph.input, inputs, strict=True)}
    for name in [n for n, a in feeds.items() if a.dtype == "int64" and a.shape == (0,)]:
        fix(model, feeds, name)  # no axes
    for _ in range(len(feeds) + 1):
        try:
            shapes = {n: a.shape for n, a in feeds.items()}
            return import_model(model, shapes, training=training), feeds
        except ModelError as error:
            found = re.search(r"input \d+ \('(.*?)'\) must be a constant", str(error))
            if not found or found[1] not in feeds:
                raise
            fix(model, feeds, found[1])
    raise AssertionError("unreachable")


def forward(imported: ImportedModel, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    names = list(imported.variables)
    fields = [e for _, e in imported.outputs]
    function = relay.Function([imported.variables[n] for n in names], relay.Tuple(fields))
    function = infer_function(function)
    fields = inline_composites(list(function.body.fields))
    function = infer_function(relay.Function(function.params, relay.Tuple(fields)))
    with tvm.transform.PassContext(opt_level=0), quiet():
        built = relay.build(tvm.IRModule.from_expr(function), "llvm")
    run = graph_executor.GraphModule(built["default"](tvm.cpu()))
    for i, name in enumerate(names):
        run.set_input(i, {**imported.state, **feeds}[name])
    run.run()
    return [run.get_output(i).numpy() for i in range(len(fields))]


def check(folder: Path) -> str | None:
    """None if all outputs agree, else what went wrong."""
    try:
        model, inputs, outputs = load(folder)
        # The tests of Dropout and BatchNormalization are of inference where not named otherwise.
        got = forward(*fix_inputs(model, inputs, training="training" in folder.name))
        for mine, wanted in zip(got, outputs, strict=True):
            if mine.shape != wanted.shape:
                return f"shape {mine.shape}, expected {wanted.shape}"
            tolerance = 2e-2 if wanted.dtype.itemsize == 2 else 1e-3
            np.testing.assert_allclose(
                mine.astype("float64"), wanted.astype("float64"), rtol=tolerance, atol=1e-5
            )
    except AssertionError as error:
        return "values differ: " + " ".join(str(error).split())[:160]
    except Exception as error:
        return f"{type(error).__name__}: " + " ".join(str(error).split())[-200:]
    return None


def op_of(folder: Path) -> str | None:
    """The op that a test is about, if all of its ops train here."""
    graph = onnx.load(folder / "model.onnx").graph
    ops = {n.op_type for n in graph.node if n.domain == ""}
    other = any(n.domain for n in graph.node)
    known = len(ops) == 1 and not other and ops <= set(CONVERTERS) - CONTROL_FLOW
    return graph.node[0].op_type if known else None


def cause(test: str, message: str) -> str:
    for pattern, text in CAUSES:
        if re.search(pattern, test) or re.search(pattern, message):
            return text
    return message


def write(new: list[dict]) -> None:
    """Renews the rows of the tests that were run, and keeps the others."""
    path = RESULTS / "onnx_node_tests.json"
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = sorted(({r["test"]: r for r in [*old, *new]}).values(), key=lambda r: r["test"])
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    by_op = defaultdict(list)
    for row in rows:
        by_op[row["op"]].append(row)
    good = sum(r["result"] == "ok" for r in rows)
    lines = [f"{good} of {len(rows)} node tests of onnx {onnx.__version__} agree.", ""]
    lines += ["| op | agree | of |", "|---|--:|--:|"]
    for op, tests in sorted(by_op.items()):
        lines.append(f"| {op} | {sum(t['result'] == 'ok' for t in tests)} | {len(tests)} |")
    lines += ["", "| test | why not |", "|---|---|"]
    lines += [f"| {r['test']} | {r['cause']} |" for r in rows if r["result"] != "ok"]
    (RESULTS / "onnx_node_tests.md").write_text("\n".join(lines) + "\n")


def main(prefixes: list[str]) -> None:
    rows = []
    for folder in sorted(DATA.iterdir()):
        if prefixes and not folder.name.startswith(tuple(prefixes)):
            continue
        op = op_of(folder)
        if op is None:
            continue
        message = check(folder)
        row = {"op": op, "test": folder.name, "result": "ok" if message is None else "failed"}
        if message is not None:
            row["cause"] = cause(folder.name, message)
            print(folder.name, message, flush=True)
        rows.append(row)
        if len(rows) % 50 == 0:
            write(rows)
    print(sum(r["result"] == "ok" for r in rows), "of", len(rows))
    write(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
