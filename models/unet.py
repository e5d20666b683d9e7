"""U-Net (Ronneberger et al., MICCAI 2015, figure 1)."""

from __future__ import annotations

import onnx

from tvm_dtr.models.layers import LayerStack


def unet(
    *,
    batch: int | None,
    seed: int,
    size: int = 64,
    width: int = 16,
    levels: int = 4,
    classes: int = 4,
) -> onnx.ModelProto:
    """Four times down and up again; a class for each pixel: logits (N, classes, size, size).

    Convolutions are padded, so that the result has the image's size, and normalized. The paper has
    a ``width`` of 64 channels at the top; ``size`` is a multiple of 2 ** ``levels``.
    """
    stack = LayerStack(seed)
    x, channels, skips = "x", 3, []
    for level in range(levels):
        x = _double_conv(stack, x, f"down{level}", channels, width << level)
        channels = width << level
        skips.append(x)
        x = stack.max_pool(x, f"down{level}.pool")
    x = _double_conv(stack, x, "bottom", channels, 2 * channels)
    for level in reversed(range(levels)):
        x = stack.conv_transpose(x, f"up{level}.conv", 2 * channels, channels)
        x = stack.concat([skips[level], x], f"up{level}.concat")
        x = _double_conv(stack, x, f"up{level}", 2 * channels, channels)
        channels //= 2
    logits = stack.conv(x, "head", width, classes, kernel=1)
    return stack.finish(
        "unet",
        logits,
        input_shape=(3, size, size),
        batch=batch,
        classes=classes,
        positions=(size, size),
    )


def _double_conv(stack: LayerStack, x: str, name: str, channels_in: int, channels_out: int) -> str:
    for index, channels in enumerate((channels_in, channels_out), start=1):
        x = stack.conv(x, f"{name}.conv{index}", channels, channels_out)
        x = stack.batch_norm(x, f"{name}.bn{index}", channels_out)
        x = stack.relu(x, f"{name}.relu{index}")
    return x
