"""MobileNet v1 for 32x32 images (Howard et al., 2017, arXiv 1704.04861, table 1)."""

from __future__ import annotations

import onnx

from tvm_dtr.models.layers import LayerStack

# Channels and stride of each depthwise-separable block.
BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)


def mobilenet(*, batch: int | None, seed: int, classes: int = 10) -> onnx.ModelProto:
    """The 13 separable blocks of the paper; the first convolution keeps the image's size."""
    stack = LayerStack(seed)
    channels = 32
    x = stack.batch_norm(stack.conv("x", "conv1", 3, channels), "bn1", channels)
    x = stack.relu(x, "relu1")
    for index, (width, stride) in enumerate(BLOCKS):
        x = _separable(stack, x, f"block{index}", channels, width, stride)
        channels = width
    x = stack.flatten(stack.global_average_pool(x, "avgpool"), "flatten")
    logits = stack.linear(x, "fc", channels, classes)
    return stack.finish("mobilenet", logits, input_shape=(3, 32, 32), batch=batch, classes=classes)


def _separable(
    stack: LayerStack, x: str, name: str, channels_in: int, channels_out: int, stride: int
) -> str:
    x = stack.conv(
        x, f"{name}.depthwise", channels_in, channels_in, stride=stride, groups=channels_in
    )
    x = stack.relu(stack.batch_norm(x, f"{name}.bn1", channels_in), f"{name}.relu1")
    x = stack.conv(x, f"{name}.pointwise", channels_in, channels_out, kernel=1)
    return stack.relu(stack.batch_norm(x, f"{name}.bn2", channels_out), f"{name}.relu2")
