"""ONNX builders of the models that the tests, the demo and the benchmarks train.

Each is made with ``onnx.helper`` alone, parameters as initializers with readable names
(``layer1.0.conv1.weight``), normalization in training mode, opset 17, input ``x`` and output
``logits``. Models of images are for 32x32 pixels unless their name says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import onnx

from tvm_dtr.errors import UsageError
from tvm_dtr.models.bottleneck import resnet50
from tvm_dtr.models.densenet import densenet121
from tvm_dtr.models.early_exit import early_exit
from tvm_dtr.models.gpt import gpt
from tvm_dtr.models.lstm import lstm
from tvm_dtr.models.mlp import mlp
from tvm_dtr.models.mobilenet import mobilenet
from tvm_dtr.models.recurrent import gru_loop, lstm_loop
from tvm_dtr.models.resnet import resnet
from tvm_dtr.models.scan_language_model import scan_language_model
from tvm_dtr.models.tree_lstm import complete_tree, random_tree, tree_lstm
from tvm_dtr.models.unet import unet
from tvm_dtr.models.unrolled_gan import unrolled_gan
from tvm_dtr.models.vgg import vgg16

__all__ = [
    "CONTROL_FLOW",
    "MODELS",
    "ModelInfo",
    "complete_tree",
    "densenet121",
    "early_exit",
    "gpt",
    "gru_loop",
    "lstm",
    "lstm_loop",
    "make",
    "mlp",
    "mobilenet",
    "random_tree",
    "resnet",
    "resnet50",
    "scan_language_model",
    "tree_lstm",
    "unet",
    "unrolled_gan",
    "vgg16",
]

Builder = Callable[..., onnx.ModelProto]  # takes batch and seed


@dataclass(frozen=True)
class ModelInfo:
    """``input_shape`` is that of one example, ``parameters`` the count of trainable numbers."""

    description: str
    input_shape: tuple[int, ...]
    parameters: int
    builder: Builder


IMAGE, PHOTO = (3, 32, 32), (3, 224, 224)
_GPT2 = {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257}
MODELS: dict[str, ModelInfo] = {
    "mlp": ModelInfo("MLP, 4 hidden layers of 512", (784,), 1_195_018, mlp),
    "lstm": ModelInfo("LSTM of 128, 28 steps", (28, 28), 81_674, lstm),
    "mobilenet": ModelInfo("MobileNet v1", IMAGE, 3_217_226, mobilenet),
    "resnet20": ModelInfo("ResNet, 3 blocks a stage", IMAGE, 272_474, partial(resnet, 20)),
    "resnet32": ModelInfo("ResNet, 5 blocks a stage", IMAGE, 466_906, partial(resnet, 32)),
    "resnet44": ModelInfo("ResNet, 7 blocks a stage", IMAGE, 661_338, partial(resnet, 44)),
    "resnet56": ModelInfo("ResNet, 9 blocks a stage", IMAGE, 855_770, partial(resnet, 56)),
    "resnet110": ModelInfo("ResNet, 18 blocks a stage", IMAGE, 1_730_714, partial(resnet, 110)),
    "resnet1202": ModelInfo("ResNet, 200 blocks a stage", IMAGE, 19_424_026, partial(resnet, 1202)),
    "resnet50": ModelInfo("ResNet-50 of bottleneck blocks", IMAGE, 23_520_842, resnet50),
    "resnet50-224": ModelInfo(
        "ResNet-50, 1000 classes", PHOTO, 25_557_032, partial(resnet50, size=224, classes=1000)
    ),
    "vgg16": ModelInfo("VGG-16 with batch normalization", IMAGE, 15_249_354, vgg16),
    "densenet121": ModelInfo("DenseNet-121", IMAGE, 6_956_298, densenet121),
    "densenet121-224": ModelInfo(
        "DenseNet-121, 1000 classes",
        PHOTO,
        7_978_856,
        partial(densenet121, size=224, classes=1000),
    ),
    "unet": ModelInfo("U-Net, 16 channels at the top", (3, 64, 64), 1_942_384, unet),
    "unet-256": ModelInfo(
        "U-Net, 64 channels at the top",
        (3, 256, 256),
        31_036_864,
        partial(unet, size=256, width=64),
    ),
    "gpt": ModelInfo("GPT of 4 layers of 128, bytes", (128,), 842_496, gpt),
    "lstm-loop": ModelInfo("LSTM of 256, as many steps as x has", (64,), 331_274, lstm_loop),
    "gru-loop": ModelInfo("GRU of 256, as many steps as x has", (64,), 249_098, gru_loop),
    "tree-lstm": ModelInfo("Tree-LSTM of 128, a tree a step", (64,), 190_085, tree_lstm),
    "unrolled-gan": ModelInfo("GAN, inner steps as many as given", (32,), 20_800, unrolled_gan),
    "scan-lm": ModelInfo("Recurrent language model, bytes", (64,), 98_816, scan_language_model),
    "early-exit": ModelInfo("MLP that stops where it is sure", (784,), 469_268, early_exit),
    "gpt2": ModelInfo("GPT-2 of 12 layers of 768", (1024,), 124_439_808, partial(gpt, **_GPT2)),
}

# Models with loops, branches or trees: their inputs are their own, and their lengths open.
CONTROL_FLOW = ("lstm-loop", "gru-loop", "scan-lm", "early-exit", "tree-lstm", "unrolled-gan")


def make(name: str, *, batch: int | None = 64, seed: int = 0) -> onnx.ModelProto:
    """Builds a model by name.

    Besides MODELS every ResNet of basic blocks of a depth of 6n + 2 (``resnet14``) works, and every
    number of hidden layers of the MLP (``mlp160``).

    Args:
      batch: rows of the input, or None for a symbolic first dimension called "batch".
      seed: of the initial weights; the same seed gives the same file.

    Raises:
      UsageError: the name is unknown or the batch is not positive.
    """
    if batch is not None and batch < 1:
        raise UsageError(f"batch {batch}: expected a positive number of rows")
    try:
        return _builder(name)(batch=batch, seed=seed)
    except ValueError as error:
        raise UsageError(f"model '{name}': {error}") from None


def _builder(name: str) -> Builder:
    if name in MODELS:
        return MODELS[name].builder
    numbered = re.fullmatch(r"(resnet|mlp)(\d{1,4})", name)
    if numbered is None:
        raise UsageError(f"unknown model '{name}': expected one of {', '.join(MODELS)}")
    number = int(numbered[2])
    return (
        partial(resnet, number) if numbered[1] == "resnet" else partial(mlp, hidden_layers=number)
    )
