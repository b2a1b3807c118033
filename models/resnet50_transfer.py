"""ResNet50 transfer on Cats vs Dogs: a frozen backbone in `eval()` and a new head of two classes."""

import torch
from torch import nn
from torch.nn import functional

from epochbench import Workload
from epochbench.datasets import DataOptions, cats_vs_dogs
from epochbench.datasets.vision import torchvision_module
from models.weights import pretrained_resnet50

SETTLING_BATCHES, SETTLING_BATCH_SIZE, SETTLING_PIXELS = 2, 8, 112


class ResNet50Transfer(nn.Module):
    """(batch, 3, 224, 224) → (batch, 2) scores; of its parameters the head's 4,098 train.

    He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016); torchvision's implementation.
    `weights_source` says what the backbone holds.
    """

    def __init__(self, state: dict[str, torch.Tensor] | None = None, weights_source: str = "random") -> None:
        super().__init__()
        self.weights_source = weights_source
        self.backbone = torchvision_module("models").resnet50()
        if state is not None:
            # Before the head is replaced: the state holds ImageNet's 1000 classes.
            self.backbone.load_state_dict(state)
        self.head = nn.Linear(self.backbone.fc.in_features, 2)
        self.backbone.fc = nn.Identity()
        self.backbone.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> "ResNet50Transfer":
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(images))


def make_model(data: DataOptions) -> ResNet50Transfer:
    """The model with pretrained weights where they are found (or fetched), else with a settled random backbone."""
    pretrained = pretrained_resnet50(download=data.download)
    if pretrained is not None:
        return ResNet50Transfer(pretrained.state, f"pretrained {pretrained.name}")
    model = ResNet50Transfer(weights_source="random frozen backbone")
    settle(model.backbone, cats_vs_dogs(data, train=True))
    return model


@torch.no_grad()
def settle(backbone: nn.Module, photographs: torch.utils.data.Dataset) -> None:
    """Set the BatchNorm statistics of a random backbone from two batches of the photographs.

    In `eval()` with the statistics it is born with (mean 0, variance 1) the activations of a random ResNet50 grow
    with its depth, and the losses start in the hundreds. Photographs are needed: with statistics of noise the
    losses still start at 10 and grow.
    """
    norms = [module for module in backbone.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    count = SETTLING_BATCHES * SETTLING_BATCH_SIZE
    stride = max(1, len(photographs) // count)  # type: ignore[arg-type]
    chosen = torch.stack([photographs[index * stride % len(photographs)][0] for index in range(count)])  # type: ignore[arg-type]
    small = functional.interpolate(chosen, size=(SETTLING_PIXELS, SETTLING_PIXELS), mode="bilinear")
    for norm in norms:
        norm.momentum = None  # a plain mean over the batches
    backbone.train()
    for batch in small.split(SETTLING_BATCH_SIZE):
        backbone(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    backbone.eval()


def workload(data: DataOptions = DataOptions()) -> Workload:
    """The second article's transfer: 224×224, batches of 32, SGD at 1e-3 with momentum 0.9 on the head, 10 epochs."""
    return Workload(
        name="resnet50_transfer",
        model=lambda: make_model(data),
        train_data=lambda: cats_vs_dogs(data, train=True),
        test_data=lambda: cats_vs_dogs(data, train=False),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
        split=lambda model: (model.backbone, model.head),
        batch_size=32,
        epochs=10,
        quick_steps=2,
    )
