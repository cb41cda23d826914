"""Small networks with the structures of well-known ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
N, F = torch.nn, torch.nn.functional


class Residual(N.Module):
    """A bottleneck of ResNet, with a projection where extents change."""

    def __init__(self, channels: int, out: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.body = N.Sequential(
            N.Conv2d(channels, out, 1, bias=False), N.BatchNorm2d(out), N.ReLU(inplace=True),
            N.Conv2d(out, out, 3, stride, 1, groups=groups, bias=False), N.BatchNorm2d(out), N.ReLU(inplace=True),
            N.Conv2d(out, out, 1, bias=False), N.BatchNorm2d(out),
        )  # fmt: skip
        self.shortcut = N.Sequential(N.Conv2d(channels, out, 1, stride, bias=False), N.BatchNorm2d(out))

    def forward(self, x: Any) -> Any:
        return F.relu(self.body(x) + self.shortcut(x))


class Inverted(N.Module):
    """An inverted residual of MobileNet-v3 with squeeze and excitation."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.expand = N.Sequential(N.Conv2d(channels, hidden, 1, bias=False), N.BatchNorm2d(hidden), N.Hardswish())
        self.depthwise = N.Sequential(
            N.Conv2d(hidden, hidden, 5, padding=2, groups=hidden, bias=False), N.BatchNorm2d(hidden), N.Hardswish()
        )
        self.squeeze = N.Sequential(
            N.AdaptiveAvgPool2d(1), N.Conv2d(hidden, 4, 1), N.ReLU(), N.Conv2d(4, hidden, 1), N.Hardsigmoid()
        )
        self.project = N.Sequential(N.Conv2d(hidden, channels, 1, bias=False), N.BatchNorm2d(channels))

    def forward(self, x: Any) -> Any:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Dense(N.Module):
    """Two layers of DenseNet: each reads all earlier channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = N.ModuleList(
            N.Sequential(N.BatchNorm2d(n), N.ReLU(), N.Conv2d(n, 4, 3, padding=1, bias=False))
            for n in (channels, channels + 4)
        )

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return F.avg_pool2d(x, 2)


class ConvNeXt(N.Module):
    """A block of ConvNeXt: depthwise, layer norm over channels, two products, a factor."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = N.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = N.LayerNorm(channels, eps=1e-6)
        self.products = N.Sequential(N.Linear(channels, 2 * channels), N.GELU(), N.Linear(2 * channels, channels))
        self.factor = N.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Any) -> Any:
        y = self.products(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + (self.factor * y).permute(0, 3, 1, 2)


class Shuffle(N.Module):
    """A unit of ShuffleNet: half of the channels pass, then the halves are mixed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = N.Sequential(
            N.Conv2d(half, half, 1), N.ReLU(), N.Conv2d(half, half, 3, padding=1, groups=half), N.Conv2d(half, half, 1)
        )

    def forward(self, x: Any) -> Any:
        kept, changed = x.chunk(2, 1)
        y = torch.cat([kept, self.branch(changed)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Attention(N.Module):
    """A layer of a vision transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.second = N.LayerNorm(width), N.LayerNorm(width)
        self.qkv, self.out = N.Linear(width, 3 * width), N.Linear(width, width)
        self.mlp = N.Sequential(N.Linear(width, 2 * width), N.GELU(), N.Linear(2 * width, width))

    def forward(self, x: Any) -> Any:
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(y)
        return x + self.mlp(self.second(x))


class UNet(N.Module):
    """Down, up with a transposed convolution, and a concatenation with the image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = N.Sequential(N.Conv2d(channels, 8, 3, 2, 1), N.GroupNorm(2, 8), N.SiLU())
        self.up = N.ConvTranspose2d(8, 8, 2, 2)
        self.last = N.Conv2d(8 + channels, channels, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return self.last(torch.cat([F.silu(self.up(self.down(x))), x], 1)) + x


class Video(N.Module):
    """Convolutions over three axes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = N.Sequential(
            N.Conv3d(channels, 6, 3, padding=1), N.BatchNorm3d(6), N.LeakyReLU(0.1), N.MaxPool3d(2), N.Conv3d(6, 4, 1)
        )

    def forward(self, x: Any) -> Any:
        return self.body(x).mean((2, 3, 4))


class Wave(N.Module):
    """Dilated convolutions over one axis with gates, as of WaveNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.filter = N.Conv1d(channels, channels, 3, padding=2, dilation=2)
        self.gate = N.Conv1d(channels, channels, 3, padding=2, dilation=2)
        self.out = N.Conv1d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        return x + self.out(torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x)))


IMAGE = (2, 8, 12, 12)
MODULES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "resnet": (lambda: N.Sequential(Residual(8, 12, 2), N.AdaptiveAvgPool2d(1), N.Flatten(), N.Linear(12, 5)), IMAGE),
    "resnext": (lambda: N.Sequential(Residual(8, 16, groups=4), N.MaxPool2d(2)), IMAGE),
    "mobilenet": (lambda: Inverted(8, 16), IMAGE),
    "densenet": (lambda: Dense(8), IMAGE),
    "convnext": (lambda: ConvNeXt(8), IMAGE),
    "shufflenet": (lambda: N.Sequential(Shuffle(8), Shuffle(8)), IMAGE),
    "transformer": (lambda: Attention(16), (2, 7, 16)),
    "unet": (lambda: UNet(8), IMAGE),
    "video": (lambda: Video(3), (2, 3, 4, 6, 6)),
    "wave": (lambda: Wave(4), (2, 4, 15)),
    "vgg": (
        lambda: N.Sequential(N.Conv2d(8, 8, 3, padding=1), N.ReLU(), N.MaxPool2d(2), N.Flatten(), N.Linear(288, 4)),
        IMAGE,
    ),
}


def made(name: str) -> tuple[Any, Any]:
    """A network with drawn weights and statistics, and an input."""
    torch.manual_seed(3)
    make, shape = MODULES[name]
    module = make()
    for part in module.modules():
        if isinstance(part, (N.BatchNorm2d, N.BatchNorm3d)):
            N.init.uniform_(part.running_var, 0.5, 1.5)
            N.init.normal_(part.running_mean, std=0.3)
    return module, torch.randn(shape)
