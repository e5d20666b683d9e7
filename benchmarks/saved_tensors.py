"""The peak of a step without a budget against what PyTorch keeps for its backward pass.

PyTorch's share is the storages that autograd saves (each once, weights left out), plus parameters
and gradients; ours is everything a step holds at its peak: those, inputs and outputs. Only
workspace is left out, so that nothing needs to be compiled.
PyTorch and TVM need not be installed together:

  python benchmarks/saved_tensors.py record FOLDER    (torch, onnx, onnxscript)
  python benchmarks/saved_tensors.py table FOLDER     (tvm-dtr)
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# Batches at which activations, not parameters, are most of the memory.
SHAPES = {
    "resnet": (128, 3, 32, 32),
    "densenet": (32, 3, 32, 32),
    "unet": (32, 3, 48, 64),
    "mobilenet": (32, 3, 32, 32),
    "gpt": (1024, 6),
    "bert": (512, 7),
    "vit": (256, 3, 16, 16),
    "lstm": (64, 24),
    "groupnorm": (128, 3, 32, 32),
}


def record(folder: Path, names: list[str]) -> None:
    """Exports each model at its shape and counts what PyTorch saves."""
    sys.path.insert(0, str(ROOT / "tests" / "data"))
    import torch
    from make_torch_exports import MODELS, torchscript

    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name in names:
        kind, _, classes, words = MODELS[name]
        torch.manual_seed(0)
        model, shape = kind().eval(), SHAPES[name]
        x = torch.randn(shape) if words is None else torch.randint(words, shape)
        torchscript(model, x, folder / f"{name}.onnx")
        model.train()
        labels = torch.randint(classes, [n for i, n in enumerate(model(x).shape) if i != 1])
        counts[name] = saved_bytes(model, x, labels)
        print(name, counts[name])
        (folder / "saved.json").write_text(json.dumps(counts, indent=1))


def saved_bytes(model: Any, x: Any, labels: Any) -> dict[str, int]:
    import torch

    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = torch.nn.functional.cross_entropy(model(x), labels)
    saved = sum(s.nbytes() for at, s in storages.items() if at not in weights)
    loss.backward()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return {"saved_bytes": saved, "parameter_bytes": parameters, "gradient_bytes": parameters}


def peak_of(model: Path) -> int:
    """Bytes that a step without a budget holds at most, by a replay without kernels."""
    from tvm_dtr.builder import make_training_step
    from tvm_dtr.compile.fuse import fuse
    from tvm_dtr.compile.linearize import linearize
    from tvm_dtr.replay import replay_of

    step = make_training_step(model, loss="cross_entropy")
    linear = linearize(fuse(step.function))
    return int(replay_of(linear.graph).run(budget=None)["peak_bytes"])


def table(folder: Path, names: list[str]) -> None:
    """Imports each model and writes results/saved_tensors.json and .md."""
    counts = json.loads((folder / "saved.json").read_text())
    rows = []
    for name in names:
        torchs = sum(counts[name].values())
        row = {"model": name, "shape": list(SHAPES[name]), **counts[name]}
        row["unbudgeted_peak_bytes"] = peak_of(folder / f"{name}.onnx")
        row["ratio"] = row["unbudgeted_peak_bytes"] / torchs
        rows.append(row)
        print(row, flush=True)
    (RESULTS / "saved_tensors.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    lines = [
        "| model | input | PyTorch saves | parameters and gradients | our peak | ratio |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for r in rows:
        weights = r["parameter_bytes"] + r["gradient_bytes"]
        sizes = (r["saved_bytes"], weights, r["unbudgeted_peak_bytes"])
        cells = " | ".join(f"{s / 2**20:.2f}" for s in sizes)
        shape = "x".join(map(str, r["shape"]))
        lines.append(f"| {r['model']} | {shape} | {cells} | {r['ratio']:.2f} |")
    text = "\n".join([*lines, "", "Sizes in MiB, models of tests/data/make_torch_exports.py."])
    (RESULTS / "saved_tensors.md").write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default=",".join(SHAPES))
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    {"record": record, "table": table}[arguments.action](arguments.folder, names)


if __name__ == "__main__":
    main()
