"""A small U-Net: one level down and up."""

import torch
from torch import nn


def double_convolution(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """(batch, 1, height, width) → {"mask": logits of that shape, "area": (batch,) logits of the mask's share}."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.down = double_convolution(1, channels)
        self.inside = double_convolution(channels, 2 * channels)
        self.rise = nn.ConvTranspose2d(2 * channels, channels, 2, stride=2)
        self.up = double_convolution(2 * channels, channels)
        self.mask = nn.Conv2d(channels, 1, 1)
        self.area = nn.Linear(2 * channels, 1)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        before = self.down(images)
        inside = self.inside(nn.functional.max_pool2d(before, 2))
        merged = self.up(torch.cat([before, self.rise(inside)], dim=1))
        return {"mask": self.mask(merged), "area": self.area(inside.mean(dim=(2, 3))).squeeze(1)}
