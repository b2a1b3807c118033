"""The project's own script, which has nothing to do with epochbench: its folder just happens to be called `bench`."""

from models.unet import UNet


def parameters() -> int:
    return sum(parameter.numel() for parameter in UNet().parameters())
