"""How it is trained: the Recipe. To add one is one entry in RECIPES."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a training may differ in without being another workload.

    `precision`             what a matrix product and a convolution are computed in. fp32 means IEEE fp32, TF32 off;
                            tf32 lets them drop to 10 bits of mantissa; bf16 and fp16 are torch's autocast, with
                            weights kept in fp32, and fp16 always with a gradient scaler: without one small gradients
                            become 0 and the loss flattens without a word.
    `read_loss_each_step`   `loss.item()` after each step, as the articles' loops do; it makes the host wait for the
                            device at every step. Otherwise the losses stay on the device until the epoch ends.
    """

    name: str
    precision: Precision = "fp32"
    read_loss_each_step: bool = False

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"Recipe.precision must be one of {', '.join(get_args(Precision))}, not {self.precision!r}"
            )


ARTICLE = Recipe(name="article", read_loss_each_step=True)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        ARTICLE,
        replace(ARTICLE, name="tf32", precision="tf32"),
        replace(ARTICLE, name="bf16", precision="bf16"),
        replace(ARTICLE, name="fp16", precision="fp16"),
    )
}


def contender_id(device: str, recipe: str) -> str:
    """How a device under a recipe is called: `cuda` under the article's, `cuda-tuned` under another."""
    return device if recipe == ARTICLE.name else f"{device}-{recipe}"
