"""How it is trained: the Recipe. To add one is one entry in RECIPES."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Compile = Literal["default", "reduce-overhead"]

ALL_CPUS = 1_000_000
"""As many workers as there are CPUs to use: a number of workers is never above that."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a training may differ in without being another workload.

    `precision`             what a matrix product and a convolution are computed in. fp32 means IEEE fp32, TF32 off;
                            tf32 lets them drop to 10 bits of mantissa; bf16 and fp16 are torch's autocast, with
                            weights kept in fp32, and fp16 always with a gradient scaler: without one small gradients
                            become 0 and the loss flattens without a word.
    `read_loss_each_step`   `loss.item()` after each step, as the articles' loops do; it makes the host wait for the
                            device at every step. Otherwise the losses stay on the device until the epoch ends.
    `resident`              the data set is read once, before the first epoch, and lies on the device.
    `workers`               processes of the DataLoader, no more than usable CPUs; they stay over the epochs, and use
                            the shared memory of their batches again (ReusedBatches), but for a
                            workload with a step of its own, which may keep batches.
    `pin_memory`            batches in page-locked memory, copied while the device computes.
    `channels_last`         images and weights with the channels innermost in memory.
    `compile`               torch.compile in that mode; reduce-overhead replays CUDA graphs.
    `cached_features`       what a frozen backbone makes of each sample is computed once (Workload.split).
    `batch_factor`          times the workload's batch size; that is another training, and the table says so.
    `threads`               of the CPU's computing, no more than usable CPUs; None for torch's own choice.
    `lenient`               what a workload or a device cannot do is left out, instead of skipping the recipe.
    """

    name: str
    precision: Precision = "fp32"
    read_loss_each_step: bool = False
    resident: bool = False
    workers: int = 0
    pin_memory: bool = False
    channels_last: bool = False
    compile: Compile | None = None
    cached_features: bool = False
    batch_factor: int = 1
    threads: int | None = None
    lenient: bool = False

    def __post_init__(self) -> None:
        for field, choices in (("precision", get_args(Precision)), ("compile", (None, *get_args(Compile)))):
            if getattr(self, field) not in choices:
                known = ", ".join(map(str, choices))
                raise ValueError(f"Recipe.{field} must be one of {known}, not {getattr(self, field)!r}")
        for field, least in (("workers", 0), ("batch_factor", 1), ("threads", 1)):
            value = getattr(self, field)
            if field == "threads" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"Recipe.{field} must be a whole number from {least}, not {value!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """What differs from a plain loop, for the record: {"resident": True, …}."""
        plain = {field.name: field.default for field in fields(self) if field.name not in ("name", "lenient")}
        return {name: getattr(self, name) for name, value in plain.items() if getattr(self, name) != value}


ARTICLE = Recipe(name="article", read_loss_each_step=True)

TUNED = Recipe(name="tuned", resident=True, channels_last=True, lenient=True)
"""What is known to be faster on every device before anything was measured; `epochbench tune` measures the rest."""

RECIPES = {
    recipe.name: recipe
    for recipe in (
        ARTICLE,
        TUNED,
        replace(ARTICLE, name="unread", read_loss_each_step=False),
        replace(ARTICLE, name="resident", resident=True),
        replace(ARTICLE, name="workers", workers=ALL_CPUS),
        replace(ARTICLE, name="pinned", workers=ALL_CPUS, pin_memory=True),
        replace(ARTICLE, name="channels-last", channels_last=True),
        replace(ARTICLE, name="compile", compile="default"),
        replace(ARTICLE, name="cuda-graphs", compile="reduce-overhead"),
        replace(ARTICLE, name="tf32", precision="tf32"),
        replace(ARTICLE, name="bf16", precision="bf16"),
        replace(ARTICLE, name="fp16", precision="fp16"),
        replace(ARTICLE, name="batch-x4", batch_factor=4),
        replace(ARTICLE, name="one-thread", threads=1),
        replace(ARTICLE, name="cached-features", cached_features=True),
    )
}


def contender_id(device: str, recipe: str) -> str:
    """How a device under a recipe is called: `cuda` under the article's, `cuda-tuned` under another."""
    return device if recipe == ARTICLE.name else f"{device}-{recipe}"
