"""Residual networks for 32x32 images (He et al., CVPR 2016, section 4.2)."""

from __future__ import annotations

import onnx

from tvm_dtr.models.layers import LayerStack


def resnet(depth: int, *, batch: int | None, seed: int, classes: int = 10) -> onnx.ModelProto:
    """A ResNet of ``depth`` = 6n + 2 layers: three stages of n blocks, 16, 32 and 64 channels.

    Where the shape changes the shortcut is a normalized 1x1 convolution of stride 2 (option B of
    the paper); option A would subsample and pad with zeros, which has no parameters. Hence
    ResNet-20 has 272,474 trainable parameters, not the 269,722 of option A.
    """
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"the depth of a ResNet is 6n + 2 (8, 14, 20, 26, 32, ...), not {depth}")
    stack = LayerStack(seed)
    x = stack.relu(_conv_norm(stack, "x", "conv1", "bn1", 3, 16), "relu1")
    channels = 16
    for stage, width in enumerate((16, 32, 64), start=1):
        for index in range((depth - 2) // 6):
            stride = 2 if stage > 1 and index == 0 else 1
            x = _block(stack, x, f"layer{stage}.{index}", channels, width, stride)
            channels = width
    x = stack.flatten(stack.global_average_pool(x, "avgpool"), "flatten")
    logits = stack.linear(x, "fc", channels, classes)
    return stack.finish(
        f"resnet{depth}", logits, input_shape=(3, 32, 32), batch=batch, classes=classes
    )


def _block(
    stack: LayerStack, x: str, name: str, channels_in: int, channels_out: int, stride: int
) -> str:
    y = _conv_norm(
        stack, x, f"{name}.conv1", f"{name}.bn1", channels_in, channels_out, stride=stride
    )
    y = stack.relu(y, f"{name}.relu1")
    y = _conv_norm(stack, y, f"{name}.conv2", f"{name}.bn2", channels_out, channels_out)
    if stride != 1 or channels_in != channels_out:
        x = _conv_norm(
            stack,
            x,
            f"{name}.shortcut.conv",
            f"{name}.shortcut.bn",
            channels_in,
            channels_out,
            kernel=1,
            stride=stride,
        )
    return stack.relu(stack.add(y, x, f"{name}.add"), f"{name}.relu2")


def _conv_norm(
    stack: LayerStack,
    x: str,
    conv: str,
    norm: str,
    channels_in: int,
    channels_out: int,
    *,
    kernel: int = 3,
    stride: int = 1,
) -> str:
    y = stack.conv(x, conv, channels_in, channels_out, kernel=kernel, stride=stride)
    return stack.batch_norm(y, norm, channels_out)
