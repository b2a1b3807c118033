"""MNIST: the user's own copy, a download, or else the embedded digits, all in the way of the articles."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from epochbench.datasets.cache import cache_folder
from epochbench.datasets.download import fetch
from epochbench.datasets.folders import check_folder, find_mnist
from epochbench.datasets.handwriting import embedded_digits
from epochbench.datasets.idx import read_images, read_labels
from epochbench.datasets.options import DataError, DataFacts, DataOptions
from epochbench.datasets.vision import torchvision_module

MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)


class DigitImages(Dataset):
    """Items ((1, 28, 28) float32 normalised, label int).

    Each goes from uint8 through a PIL image, ToTensor and Normalize, as torchvision's MNIST does in the
    articles: what that costs is part of what is measured.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, facts: DataFacts) -> None:
        transforms = torchvision_module("transforms")

        self.facts = facts
        self.targets = torch.tensor(labels, dtype=torch.int64)
        self._images = images
        self._transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MNIST_MEAN, MNIST_STD)])

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._transform(Image.fromarray(self._images[index])), int(self.targets[index])


def digits(options: DataOptions = DataOptions(), *, train: bool) -> DigitImages:  # noqa: B008 (frozen)
    """Items ((1, 28, 28) float32 normalised with (0.1307, 0.3081), label 0 to 9).

    MNIST of the folder, else the download if it is asked for, else the embedded digits. Raises DataError.
    """
    check_folder(options)
    files = None if options.folder is None else find_mnist(options.folder)
    if files is None and options.download:
        files = download_mnist(cache_folder() / "mnist")
    if files is not None:
        return _from_files(files, train=train)
    images, labels, fingerprint = embedded_digits(train=train)
    facts = DataFacts(name="embedded digits (scikit-learn)", fingerprint=fingerprint, samples=len(images), classes=10)
    return DigitImages(images, labels, facts)


def _from_files(files: dict[str, Path], *, train: bool) -> DigitImages:
    part = "train" if train else "t10k"
    images_path, labels_path = files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"]
    images, labels = read_images(images_path), read_labels(labels_path)
    if len(images) != len(labels):
        raise DataError(
            f"{labels_path}: holds {len(labels):,} labels for {len(images):,} images; get both files again"
        )
    digest = hashlib.sha256(images.tobytes())
    digest.update(labels.astype("<i8").tobytes())
    facts = DataFacts(name="MNIST", fingerprint=digest.hexdigest(), samples=len(images), classes=10)
    return DigitImages(images, labels, facts)


def download_mnist(folder: Path, *, timeout_seconds: float = 5) -> dict[str, Path]:
    """MNIST's four files, by name, from the first of torchvision's mirrors that gives each of them whole.

    Raises DataError.
    """
    MNIST = torchvision_module("datasets").MNIST

    files = {}
    for packed, md5 in MNIST.resources:
        failures = []
        for mirror in MNIST.mirrors:
            try:
                path = fetch(f"{mirror}{packed}", folder / packed, md5=md5, timeout_seconds=timeout_seconds)
            except DataError as error:
                failures.append(error)
            else:
                files[packed.removesuffix(".gz")] = path
                break
        else:
            told = " | ".join(str(failure) for failure in failures)
            raise DataError(
                f"MNIST: {packed} could not be downloaded ({told}); leave the download out, or give a folder "
                "that holds MNIST"
            ) from failures[-1]
    return files
