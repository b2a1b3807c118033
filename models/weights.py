"""Pretrained ResNet50 weights: where torchvision keeps them, or from where it gets them."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from epochbench.datasets import DataError
from epochbench.datasets.vision import torchvision_module


@dataclass(frozen=True)
class Pretrained:
    name: str
    state: dict[str, torch.Tensor]


def pretrained_resnet50(*, download: bool) -> Pretrained | None:
    """The weights found in torch's cache of checkpoints, the article's (V1) first; None where there are none.

    With `download` V1 is fetched where neither lies there. A file whose size or hash is wrong is named: it is
    fetched anew with `download`, and refused with DataError without.
    """
    ResNet50_Weights = torchvision_module("models").ResNet50_Weights

    folder = Path(torch.hub.get_dir()) / "checkpoints"
    choices = (ResNet50_Weights.IMAGENET1K_V1, ResNet50_Weights.IMAGENET1K_V2)
    for weights in choices:
        file = folder / weights.url.rsplit("/", 1)[1]
        if file.exists() and not (download and not _is_whole(file)):
            return Pretrained(weights.name, load_state(file))
    if not download:
        return None
    from epochbench.datasets.download import fetch

    file = folder / choices[0].url.rsplit("/", 1)[1]
    fetch(choices[0].url, file, sha256_prefix=_hash_in_name(file))
    return Pretrained(choices[0].name, load_state(file))


def load_state(file: Path) -> dict[str, torch.Tensor]:
    """The state in a checkpoint file, on the CPU. Raises DataError naming the file where it is not whole."""
    if not _is_whole(file):
        raise DataError(
            f"{file.name} in torch's checkpoint folder is damaged ({file.stat().st_size:,} bytes); delete it, or "
            "fetch it anew with --race-download"
        )
    return torch.load(file, map_location="cpu", weights_only=True)


def _is_whole(file: Path) -> bool:
    """Whether the file's content begins with the hash that torch writes into the name: name-0676ba61.pth."""
    if file.stat().st_size == 0:
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest().startswith(_hash_in_name(file))


def _hash_in_name(file: Path) -> str:
    found = re.search(r"-([0-9a-f]{8,})\.", file.name)
    return found[1] if found else ""
