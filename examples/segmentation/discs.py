"""Grey images of a disc on noise, with its mask: each made when it is read, always the same."""

import torch
from torch.utils.data import Dataset

SIDE = 32


class Discs(Dataset):
    """Items {"image": (1, 32, 32) float32, "mask": (1, 32, 32) float32 of 0 and 1, "area": () float32}."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed * self.count + index)
        x, y, radius = torch.rand(3, generator=generator).tolist()
        rows = torch.arange(SIDE).float()
        distance = (rows[:, None] - SIDE * y) ** 2 + (rows[None, :] - SIDE * x) ** 2
        mask = (distance < (4 + 8 * radius) ** 2).float()[None]
        image = 0.7 * mask + 0.3 * torch.rand(mask.shape, generator=generator)
        return {"image": image, "mask": mask, "area": mask.mean()}
