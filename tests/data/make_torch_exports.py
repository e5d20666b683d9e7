"""Writes exports/: nine small networks as both of PyTorch's exporters write them, with the loss,
gradients, running statistics and ten SGD steps of PyTorch. Needs torch 2.13.0, onnx 1.18 and
onnxscript 0.7.

    python tests/data/make_torch_exports.py [NAME ...]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from make_torch_goldens import ResNet, Transformer, UNet
from torch import nn
from torch.nn import functional as F

FOLDER = Path(__file__).parent / "exports"
STEPS, LEARNING_RATE = 10, 0.02


class DenseLayer(nn.Module):
    def __init__(self, cin, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(cin), nn.Conv2d(cin, 2 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(2 * growth)
        self.conv2 = nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.block1 = nn.Sequential(*[DenseLayer(8 + 4 * i, 4) for i in range(3)])
        self.norm, self.shrink = nn.BatchNorm2d(20), nn.Conv2d(20, 10, 1, bias=False)
        self.block2 = nn.Sequential(*[DenseLayer(10 + 4 * i, 4) for i in range(2)])
        self.last, self.fc = nn.BatchNorm2d(18), nn.Linear(18, 5)

    def forward(self, x):
        x = self.block1(self.stem(x))
        x = F.avg_pool2d(self.shrink(F.relu(self.norm(x))), 2)
        x = F.relu(self.last(self.block2(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Inverted(nn.Module):
    """MobileNetV3's block: expand, depthwise, squeeze and excite, project."""

    def __init__(self, cin, mid, cout, stride):
        super().__init__()
        self.skip = stride == 1 and cin == cout
        self.expand = nn.Sequential(
            nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.Hardswish()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(mid, mid, 5, stride, 2, groups=mid, bias=False),
            nn.BatchNorm2d(mid),
            nn.Hardswish(),
        )
        self.squeeze, self.excite = nn.Conv2d(mid, 4, 1), nn.Conv2d(4, mid, 1)
        self.project = nn.Sequential(nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        scale = F.adaptive_avg_pool2d(y, 1)
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(scale))))
        y = self.project(y * scale)
        return x + y if self.skip else y


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.blocks = nn.Sequential(Inverted(8, 16, 8, 1), Inverted(8, 24, 12, 2))
        self.fc = nn.Sequential(
            nn.Linear(12, 16), nn.Hardswish(), nn.Dropout(0.0), nn.Linear(16, 5)
        )

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class Bert(nn.Module):
    """Token, place and segment embeddings, encoder layers after normalization, a pooled head."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(17, 16), nn.Embedding(7, 16)
        self.norm = nn.LayerNorm(16, eps=1e-12)
        layers = [
            nn.TransformerEncoderLayer(16, 4, 24, 0.0, "gelu", batch_first=True) for _ in range(2)
        ]
        self.layers = nn.ModuleList(layers)
        self.pooler, self.head = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x):
        h = self.norm(self.words(x) + self.places(torch.arange(x.shape[1])))
        for layer in self.layers:
            h = layer(h)
        return self.head(torch.tanh(self.pooler(h[:, 0])))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.1)
        self.places = nn.Parameter(torch.randn(1, 17, 16) * 0.1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True, bias=True
            )
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(h.shape[0], -1, -1), h], 1) + self.places
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h)[:, 0])


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(13, 8)
        self.lstm = nn.LSTM(8, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 4)

    def forward(self, x):
        y, _ = self.lstm(self.words(x))
        return self.head(y.mean(1))


class GroupNormNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm1 = nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8)
        self.conv, self.norm2 = nn.Conv2d(8, 12, 3, padding=1), nn.GroupNorm(4, 12)
        self.out, self.norm3 = nn.Conv2d(12, 12, 3, 2, 1), nn.GroupNorm(1, 12)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        x = F.silu(self.norm1(self.stem(x)))
        x = F.mish(self.norm2(self.conv(x)))
        x = F.prelu(self.norm3(self.out(x)), self.norm1.weight[:1] * 0.25)
        return self.fc(x.amax((2, 3)))


IMAGES = (4, 3, 16, 16)
MODELS = {
    "resnet": (ResNet, IMAGES, 10, None),
    "densenet": (DenseNet, (4, 3, 8, 8), 5, None),
    "unet": (UNet, (2, 3, 12, 16), 4, None),
    "mobilenet": (MobileNet, IMAGES, 5, None),
    "gpt": (Transformer, (3, 6), 11, 11),
    "bert": (Bert, (3, 7), 3, 17),
    "vit": (ViT, IMAGES, 5, None),
    "lstm": (LSTM, (3, 6), 4, 13),
    "groupnorm": (GroupNormNet, IMAGES, 5, None),
}


def torchscript(model, x, path):
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


def dynamo(model, x, path):
    """Not optimized: that folds batch normalization into convolutions and transposes weights."""
    torch.onnx.export(
        model,
        (x,),
        path,
        input_names=["x"],
        output_names=["logits"],
        dynamo=True,
        optimize=False,
        verbose=False,
    )


def without_comments(path):
    """The model without source locations, which are most of a dynamo export's bytes."""
    model = onnx.load(path)
    for item in [model, model.graph, *model.graph.node, *model.graph.value_info]:
        item.doc_string = ""
        if hasattr(item, "metadata_props"):
            del item.metadata_props[:]
    for item in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
        del item.metadata_props[:]
    del model.graph.value_info[:]
    return model


def export(model, x, name):
    for exporter in (torchscript, dynamo):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            exporter(model, x, path)
            onnx.save(without_comments(path), FOLDER / f"{name}.{exporter.__name__}.onnx")


def running_statistics(model, x):
    """After one step, as ONNX defines them: with the biased variance of the batch."""
    counts = {}
    norms = {n: m for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    for name, module in norms.items():
        module.register_forward_pre_hook(
            lambda m, args, name=name: counts.update({name: args[0][:, 0].numel()})
        )
    state = {n: b.clone() for n, b in model.named_buffers() if "running" in n}
    before = {n: t.clone() for n, t in model.state_dict().items()}
    model(x)
    model.load_state_dict(before)
    for name, count in counts.items():
        key = f"{name}.running_var"
        state[key] = 0.9 + (state[key] - 0.9) * (count - 1) / count
    return state


def train(model, x, labels):
    """PyTorch's own numbers: the first step's gradients and statistics, and the loss curve."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    arrays, losses = {}, []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        if step == 0:
            arrays = {f"grad:{n}": p.grad.clone() for n, p in model.named_parameters()}
            arrays |= running_statistics(model, x)
        losses.append(loss.item())
        optimizer.step()
    return {k: v.numpy() for k, v in arrays.items()} | {"losses": np.array(losses)}


def write(name):
    kind, shape, classes, words = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    model = kind().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
    x = torch.randn(shape) if words is None else torch.randint(words, shape)
    labels = torch.randint(classes, [n for i, n in enumerate(model(x).shape) if i != 1])
    export(model, x, name)
    arrays = {"x": x.numpy(), "labels": labels.numpy(), **train(model, x, labels)}
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def main(names):
    FOLDER.mkdir(exist_ok=True)
    for name in names or MODELS:
        write(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
