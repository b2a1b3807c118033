"""How it is trained: the Recipe. To add one is one entry in RECIPES."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a training may differ in without being another workload.

    `precision`             what a matrix product and a convolution are computed in; fp32 means IEEE fp32, TF32 off.
    `read_loss_each_step`   `loss.item()` after each step, as the articles' loops do; it makes the host wait for the
                            device at every step. Otherwise the losses stay on the device until the epoch ends.
    """

    name: str
    precision: Literal["fp32"] = "fp32"
    read_loss_each_step: bool = False


ARTICLE = Recipe(name="article", read_loss_each_step=True)

RECIPES = {recipe.name: recipe for recipe in (ARTICLE,)}


def contender_id(device: str, recipe: str) -> str:
    """How a device under a recipe is called: `cuda` under the article's, `cuda-tuned` under another."""
    return device if recipe == ARTICLE.name else f"{device}-{recipe}"
