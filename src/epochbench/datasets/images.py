"""Image files decoded from disk at each access, as the article's data set does."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from epochbench.datasets.options import DataError, DataFacts
from epochbench.datasets.scan import read_rgb
from epochbench.datasets.vision import torchvision_module

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class ImageFiles(Dataset):
    """Items ((3, 224, 224) float32 ImageNet-normalised, label int): ``facts.samples`` of them, files modulo.

    names, labels: the files, relative to ``root``.
    warned: the files about which the decoder is known to warn; it is not heard again.
    """

    def __init__(
        self,
        root: Path,
        names: Sequence[str],
        labels: Sequence[int],
        *,
        facts: DataFacts,
        warned: frozenset[str] = frozenset(),
    ) -> None:
        transforms = torchvision_module("transforms")

        self.facts = facts
        self.targets = torch.tensor(labels, dtype=torch.int64)[torch.arange(facts.samples) % len(labels)]
        self._root = str(root.absolute())
        self._names = tuple(names)
        self._warned = warned
        self._transform = transforms.Compose(
            [
                transforms.Resize((224, 224)),
                transforms.ToTensor(),
                transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD),
            ]
        )

    def __len__(self) -> int:
        return self.facts.samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = int(self.targets[index])  # an index out of range ends here, as iteration needs it
        name = self._names[range(len(self))[index] % len(self._names)]
        path = Path(self._root, name)
        try:
            if name in self._warned:
                with warnings.catch_warnings(action="ignore"):
                    image = read_rgb(path)
            else:
                image = read_rgb(path)
        # Damaged files raise nearly everything from within Pillow, as in the scan.
        except Exception as error:
            raise DataError(f"{path}: cannot be read any more ({error}); start again without it") from error
        return self._transform(image), label
