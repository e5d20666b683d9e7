"""ResNet-50 (He et al., CVPR 2016, table 1)."""

from __future__ import annotations

import onnx

from tvm_dtr.models.layers import LayerStack

BLOCKS = (3, 4, 6, 3)  # of each stage
EXPANSION = 4  # output channels of a block over the width of its 3x3 convolution


def resnet50(
    *, batch: int | None, seed: int, size: int = 32, width: int = 64, classes: int = 10
) -> onnx.ModelProto:
    """Bottleneck blocks of four stages, the stride in the 3x3 convolution.

    Images of 64 pixels and more are first brought to a quarter of their ``size``, as in the paper
    (7x7 at stride 2, then pooling); for smaller ones a 3x3 convolution keeps it. ``width`` is that
    of the first stage.
    """
    stack = LayerStack(seed)
    is_large = size >= 64
    x = stack.conv("x", "conv1", 3, width, kernel=7 if is_large else 3, stride=1 + is_large)
    x = stack.relu(stack.batch_norm(x, "bn1", width), "relu1")
    if is_large:
        x = stack.max_pool(x, "maxpool", kernel=3, pad=1)
    channels = width
    for stage, blocks in enumerate(BLOCKS, start=1):
        inner = width << (stage - 1)
        for index in range(blocks):
            stride = 2 if stage > 1 and index == 0 else 1
            x = _block(stack, x, f"layer{stage}.{index}", channels, inner, stride)
            channels = inner * EXPANSION
    x = stack.flatten(stack.global_average_pool(x, "avgpool"), "flatten")
    logits = stack.linear(x, "fc", channels, classes)
    return stack.finish(
        "resnet50", logits, input_shape=(3, size, size), batch=batch, classes=classes
    )


def _block(stack: LayerStack, x: str, name: str, channels: int, inner: int, stride: int) -> str:
    outer = inner * EXPANSION
    y = stack.conv(x, f"{name}.conv1", channels, inner, kernel=1)
    y = stack.relu(stack.batch_norm(y, f"{name}.bn1", inner), f"{name}.relu1")
    y = stack.conv(y, f"{name}.conv2", inner, inner, stride=stride)
    y = stack.relu(stack.batch_norm(y, f"{name}.bn2", inner), f"{name}.relu2")
    y = stack.batch_norm(
        stack.conv(y, f"{name}.conv3", inner, outer, kernel=1), f"{name}.bn3", outer
    )
    if stride != 1 or channels != outer:
        x = stack.conv(x, f"{name}.shortcut.conv", channels, outer, kernel=1, stride=stride)
        x = stack.batch_norm(x, f"{name}.shortcut.bn", outer)
    return stack.relu(stack.add(y, x, f"{name}.add"), f"{name}.relu3")
