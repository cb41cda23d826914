"""A module of PyTorch, executed by graphdnn: torch.compile, and what went where."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    print("This example needs PyTorch: pip install torch")
    raise SystemExit

import torch

import graphdnn.torch


class Block(torch.nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


torch.manual_seed(0)
model = torch.nn.Sequential(
    Block(8), Block(8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4)
)
model.eval()
image = torch.randn(2, 8, 16, 16)

compiled = torch.compile(model, backend="graphdnn")
with torch.no_grad():
    difference = (compiled(image) - model(image)).abs().max().item()
print("largest difference from PyTorch: below 1e-5:", difference < 1e-5)

print()
print(graphdnn.torch.explain(model, image))

print()
print("on an H200, which need not be here:")
print(graphdnn.torch.explain(model.half(), image.half(), options={"device": "h200"}))


def running_sums(x: torch.Tensor) -> torch.Tensor:
    """A function with an operator that the library does not have."""
    return torch.cumsum(torch.relu(x * 2), 1)


print()
print(graphdnn.torch.explain(running_sums, image))
