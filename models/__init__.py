"""ONNX builders of the models that the tests, the demo and the benchmarks train.

Each is made with ``onnx.helper`` alone, parameters as initializers with readable names
(``layer1.0.conv1.weight``), normalization in training mode, opset 17, input ``x`` and output
``logits``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import onnx

from tvm_dtr.errors import UsageError
from tvm_dtr.models.mlp import mlp
from tvm_dtr.models.mobilenet import mobilenet
from tvm_dtr.models.resnet import resnet
from tvm_dtr.models.vgg import vgg16

__all__ = ["MODELS", "ModelInfo", "make", "mlp", "mobilenet", "resnet", "vgg16"]


@dataclass(frozen=True)
class ModelInfo:
    """``input_shape`` is that of one example, ``parameters`` the count of trainable numbers."""

    description: str
    input_shape: tuple[int, ...]
    parameters: int


IMAGE = (3, 32, 32)
MODELS: dict[str, ModelInfo] = {
    "mlp": ModelInfo("MLP, 4 hidden layers of 512", (784,), 1_195_018),
    "mobilenet": ModelInfo("MobileNet v1", IMAGE, 3_217_226),
    "resnet20": ModelInfo("ResNet, 3 blocks a stage", IMAGE, 272_474),
    "resnet32": ModelInfo("ResNet, 5 blocks a stage", IMAGE, 466_906),
    "resnet44": ModelInfo("ResNet, 7 blocks a stage", IMAGE, 661_338),
    "resnet56": ModelInfo("ResNet, 9 blocks a stage", IMAGE, 855_770),
    "resnet110": ModelInfo("ResNet, 18 blocks a stage", IMAGE, 1_730_714),
    "resnet1202": ModelInfo("ResNet, 200 blocks a stage", IMAGE, 19_424_026),
    "vgg16": ModelInfo("VGG-16 with batch normalization", IMAGE, 15_249_354),
}


def make(name: str, *, batch: int | None = 64, seed: int = 0) -> onnx.ModelProto:
    """Builds a model by name; besides MODELS every ResNet depth of 6n + 2 (``resnet14``) works.

    Args:
      batch: rows of the input, or None for a symbolic first dimension called "batch".
      seed: of the initial weights; the same seed gives the same file.

    Raises:
      UsageError: the name is unknown or the batch is not positive.
    """
    if batch is not None and batch < 1:
        raise UsageError(f"batch {batch}: expected a positive number of rows")
    depth = re.fullmatch(r"resnet(\d{1,4})", name)
    if depth:
        try:
            return resnet(int(depth[1]), batch=batch, seed=seed)
        except ValueError as error:
            raise UsageError(f"model '{name}': {error}") from None
    builders = {"mlp": mlp, "mobilenet": mobilenet, "vgg16": vgg16}
    if name not in builders:
        raise UsageError(f"unknown model '{name}': expected one of {', '.join(MODELS)}")
    return builders[name](batch=batch, seed=seed)
