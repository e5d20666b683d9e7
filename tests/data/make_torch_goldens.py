"""Writes torch_*.onnx and torch_*.npz beside this file: models exported by PyTorch, with the loss,
gradients and running statistics of one training step. Needs torch 2.13.0, onnx 1.18 and onnxscript.

    python tests/data/make_torch_goldens.py
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        skip = x if self.down is None else self.down(x)
        return F.relu(self.bn2(self.conv2(y)) + skip)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()

        def pair(cin, cout, stride):
            return [
                nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False),
                nn.BatchNorm2d(cin),
                nn.ReLU6(),
                nn.Conv2d(cin, cout, 1, bias=False),
                nn.BatchNorm2d(cout),
                nn.ReLU6(),
            ]

        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 1, 1), *pair(8, 12, 1), *pair(12, 16, 2), *pair(16, 16, 2)
        )
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Convs(nn.Module):
    """Strides, dilation, groups, rectangular kernels and padding, asymmetric padding, 1-d."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, (3, 5), (2, 1), (1, 2))
        self.b = nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=2)
        self.c = nn.Conv2d(8, 12, 4, 3, 1, groups=4)
        self.d = nn.Conv2d(12, 8, 1, 2)
        self.e = nn.Conv1d(8, 6, 3, 2, 1)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        x = torch.sigmoid(self.a(x))
        x = F.avg_pool2d(F.leaky_relu(self.b(F.pad(x, (1, 0, 0, 2)))), 2)
        x = torch.tanh(self.d(self.c(x)))
        x = self.e(x.flatten(2)).amax(2)
        return F.log_softmax(self.fc(x), 1)


class Transformer(nn.Module):
    """A causal language model in small: embeddings, attention, layer norm, gelu, tied head."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 16), nn.Embedding(6, 16)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(16) for _ in range(3))
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        n, t = x.shape
        h = self.tokens(x) + self.places(torch.arange(t))
        q, k, v = self.qkv(self.norm1(h)).view(n, t, 3, 4, 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / 2.0
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, -1e9).softmax(-1)
        h = h + self.out((weights @ v).transpose(1, 2).reshape(n, t, 16))
        h = h + self.down(F.gelu(self.up(self.norm2(h))))
        return (self.norm3(h) @ self.tokens.weight.T).transpose(1, 2)


class UNet(nn.Module):
    """Transposed convolution, concatenated skips, group and instance norm, upsampling."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.c, self.up = nn.Conv2d(8, 8, 3, 2, 1), nn.ConvTranspose2d(8, 8, 2, 2)
        self.d, self.e = nn.Conv2d(16, 8, 3, 1, 1), nn.Conv2d(16, 4, 1)
        self.norm1, self.norm2 = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)

    def forward(self, x):
        a = F.silu(self.norm1(self.a(x)))
        b = F.hardswish(self.norm2(self.b(a)))
        c = F.elu(self.c(b))
        d = F.softplus(self.d(torch.cat([self.up(c), b], 1)))
        d = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.e(torch.cat([d, a], 1))


def write(name, model, shape, classes):
    torch.manual_seed(sum(map(ord, name)))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
    model.eval()
    x = torch.randn(shape)
    labels = torch.randint(classes, [n for i, n in enumerate(model(x).shape) if i != 1])
    path = HERE / f"torch_{name}.onnx"
    torch.onnx.export(
        model,
        (x,),
        path,
        input_names=["x"],
        output_names=["logits"],
        opset_version=17,
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
    )
    model.train()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    arrays = {"x": x, "labels": labels, "loss": loss.detach()}
    arrays |= {f"grad:{n}": p.grad for n, p in model.named_parameters()}
    arrays |= {n: b for n, b in model.named_buffers() if "running" in n}
    np.savez_compressed(HERE / f"torch_{name}.npz", **{k: v.numpy() for k, v in arrays.items()})


def main():
    torch.manual_seed(0)
    write("depthwise", Depthwise(), (4, 3, 12, 12), 5)
    write("convs", Convs(), (3, 3, 20, 17), 4)


if __name__ == "__main__":
    sys.exit(main())
