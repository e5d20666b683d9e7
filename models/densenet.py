"""DenseNet-121 (Huang et al., CVPR 2017, table 1)."""

from __future__ import annotations

import onnx

from tvm_dtr.models.layers import LayerStack

BLOCKS = (6, 12, 24, 16)  # layers of each dense block
BOTTLENECK = 4  # channels of a layer's 1x1 convolution over the growth


def densenet121(
    *, batch: int | None, seed: int, size: int = 32, growth: int = 32, classes: int = 10
) -> onnx.ModelProto:
    """Four dense blocks; each layer adds ``growth`` channels to all that went before it.

    Images of 64 pixels and more are first brought to a quarter of their ``size``, as in the paper;
    for smaller ones a 3x3 convolution keeps it.
    """
    stack = LayerStack(seed)
    is_large = size >= 64
    channels = 2 * growth
    x = stack.conv("x", "conv1", 3, channels, kernel=7 if is_large else 3, stride=1 + is_large)
    if is_large:
        x = stack.relu(stack.batch_norm(x, "bn1", channels), "relu1")
        x = stack.max_pool(x, "maxpool", kernel=3, pad=1)
    for block, layers in enumerate(BLOCKS, start=1):
        for index in range(layers):
            x = _dense_layer(stack, x, f"block{block}.{index}", channels, growth)
            channels += growth
        if block < len(BLOCKS):
            x = _transition(stack, x, f"transition{block}", channels)
            channels //= 2
    x = stack.relu(stack.batch_norm(x, "bn", channels), "relu")
    x = stack.flatten(stack.global_average_pool(x, "avgpool"), "flatten")
    logits = stack.linear(x, "fc", channels, classes)
    return stack.finish(
        "densenet121", logits, input_shape=(3, size, size), batch=batch, classes=classes
    )


def _dense_layer(stack: LayerStack, x: str, name: str, channels: int, growth: int) -> str:
    inner = BOTTLENECK * growth
    y = stack.relu(stack.batch_norm(x, f"{name}.bn1", channels), f"{name}.relu1")
    y = stack.conv(y, f"{name}.conv1", channels, inner, kernel=1)
    y = stack.relu(stack.batch_norm(y, f"{name}.bn2", inner), f"{name}.relu2")
    return stack.concat([x, stack.conv(y, f"{name}.conv2", inner, growth)], f"{name}.concat")


def _transition(stack: LayerStack, x: str, name: str, channels: int) -> str:
    x = stack.relu(stack.batch_norm(x, f"{name}.bn", channels), f"{name}.relu")
    return stack.average_pool(
        stack.conv(x, f"{name}.conv", channels, channels // 2, kernel=1), f"{name}.pool"
    )
