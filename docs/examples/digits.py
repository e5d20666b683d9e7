"""Trains a small CNN on scikit-learn's handwritten digits at half of its memory, and exports it.

    python docs/examples/digits.py --out digits

Needs scikit-learn, and ONNX Runtime to check the exported model (`pip install 'tvm-dtr[test]'`).
Writes train.npz, test.npz, digits.onnx, digits.tdtr, checkpoints and trained.onnx, and prints the
accuracy on images that it was not trained on, in evaluation mode and in ONNX Runtime.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnx

import tvm_dtr
from tvm_dtr.evaluation import Evaluator
from tvm_dtr.learning_rates import OneCycle
from tvm_dtr.models.layers import LayerStack

BATCH, EPOCHS, TRAINING_IMAGES = 64, 15, 1400


def network() -> onnx.ModelProto:
    """Three convolutions of 16 and three of 32 channels on 8x8 pixels."""
    stack = LayerStack(seed=0)
    x, channels = "x", 1
    for index, width in enumerate((16, 16, 16, 32, 32, 32)):
        x = stack.conv(x, f"conv{index}", channels, width, stride=2 if index == 3 else 1)
        x = stack.relu(stack.batch_norm(x, f"bn{index}", width), f"relu{index}")
        channels = width
    x = stack.flatten(stack.global_average_pool(x, "pool"), "flat")
    logits = stack.linear(x, "fc", channels, 10)
    return stack.finish("digits", logits, input_shape=(1, 8, 8), batch=BATCH, classes=10)


def write_data(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None] / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(images))
    parts = []
    for name, chosen in (("train", order[:TRAINING_IMAGES]), ("test", order[TRAINING_IMAGES:])):
        parts.append({"x": images[chosen], "labels": digits.target[chosen].astype("int64")})
        np.savez(folder / f"{name}.npz", **parts[-1])
    return parts[0], parts[1]


def accuracy_in_onnx_runtime(path: Path, data: dict[str, np.ndarray]) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    right = 0
    for start in range(0, len(data["x"]), BATCH):  # the graph is for batches of this size
        images = data["x"][start : start + BATCH]
        padded = np.resize(images, (BATCH, *images.shape[1:]))
        (logits,) = session.run(["logits"], {"x": padded})
        predicted = logits[: len(images)].argmax(axis=1)
        right += int((predicted == data["labels"][start : start + BATCH]).sum())
    return right / len(data["x"])


def main() -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="digits", help="folder to write to")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args()
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    train, test = write_data(folder)
    onnx.save(network(), folder / "digits.onnx")
    start = time.perf_counter()
    program = tvm_dtr.build(
        folder / "digits.onnx", loss="cross_entropy", optimizer=tvm_dtr.AdamW(weight_decay=0.01)
    )
    program.save(folder / "digits.tdtr")
    vm = tvm_dtr.VirtualMachine(program, memory_budget="50%")
    evaluate = Evaluator(program, test, ["loss", "accuracy"])
    steps = arguments.epochs * (len(train["x"]) // BATCH)
    trainer = tvm_dtr.Trainer(
        vm,
        train,
        epochs=arguments.epochs,
        schedule=OneCycle(0.01, steps),
        checkpoint_dir=folder / "checkpoints",
        metrics=folder / "metrics.jsonl",
    )
    last = trainer.run(resume=True)
    onnx.save(program.to_onnx(vm.parameters), folder / "trained.onnx")
    found = {
        **evaluate(vm),
        "onnx_runtime_accuracy": accuracy_in_onnx_runtime(folder / "trained.onnx", test),
        "peak_bytes": last["peak_bytes"],
        "unbudgeted_peak_bytes": program.unbudgeted_peak_bytes,
        "seconds": time.perf_counter() - start,
    }
    print("\n".join(f"{name}: {value:.4g}" for name, value in found.items()))
    return found


if __name__ == "__main__":
    main()
