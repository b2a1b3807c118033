"""Is the U-Net worth a GPU?   pytest bench_unet.py --benchmark-only"""

import torch
from discs import Discs
from epochbench import Workload
from models.unet import UNet
from torch.nn import functional


def step(model, batch):
    outputs = model(batch["image"])
    mask = functional.binary_cross_entropy_with_logits(outputs["mask"], batch["mask"])
    area = functional.mse_loss(outputs["area"].sigmoid(), batch["area"])
    return mask + 0.1 * area


unet = Workload(
    name="unet",
    model=UNet,
    train_data=lambda: Discs(512, seed=0),
    test_data=lambda: Discs(128, seed=1),
    step=step,
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    batch_size=16,
    epochs=20,
    quick_steps=16,
)


def test_unet(race):
    race(unet)
