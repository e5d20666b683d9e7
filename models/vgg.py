"""VGG-16 with batch normalization for 32x32 images (Simonyan and Zisserman, ICLR 2015)."""

from __future__ import annotations

import onnx

from tvm_dtr.models.layers import LayerStack

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(*, batch: int | None, seed: int, classes: int = 10) -> onnx.ModelProto:
    """Thirteen convolutions and three dense layers (table 1, column D).

    A 32x32 image ends as 1x1, so the dense layers have 512 units; a normalization follows every
    convolution, and there is no dropout.
    """
    stack = LayerStack(seed)
    x, channels = "x", 3
    for stage, widths in enumerate(STAGES, start=1):
        for index, width in enumerate(widths):
            name = f"stage{stage}.{index}"
            x = stack.conv(x, f"{name}.conv", channels, width)
            x = stack.relu(stack.batch_norm(x, f"{name}.bn", width), f"{name}.relu")
            channels = width
        x = stack.max_pool(x, f"stage{stage}.pool")
    x = stack.flatten(x, "flatten")
    for index in (1, 2):
        x = stack.relu(stack.linear(x, f"fc{index}", channels, channels), f"fc{index}.relu")
    logits = stack.linear(x, "fc3", channels, classes)
    return stack.finish("vgg16", logits, input_shape=(3, 32, 32), batch=batch, classes=classes)
