"""Records the networks of data/figures.csv that are not recorded yet: `python -m epochbench.prediction.networks`.

Needs timm (`pip install -e '.[calibration]'`), of which the figures are. Training figures are of torch 1.12, before
fused attention and optimizers over lists of tensors, so they are recorded without; inference figures with.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torchvision import models

from epochbench.prediction.figures import Network, Rows, read_figures, read_recordings, summed, write_recordings
from epochbench.prediction.recorder import OperationRecorder, record_forward, record_step

VGG16 = "vgg16_bn of 10 classes, Adam"


def make_model(network: Network) -> nn.Module:
    """timm's network for images of that size, on meta; made on the CPU where its making looks at values."""
    import timm

    if network.network == VGG16:
        with torch.device("meta"):
            model = models.vgg16_bn()
            model.classifier[-1] = nn.Linear(4096, 10)
        return model

    def make(**how: Any) -> nn.Module:
        try:
            with torch.device("meta"):
                return timm.create_model(network.network, **how)
        except (NotImplementedError, AttributeError):
            return timm.create_model(network.network, **how)

    model = make()
    if model.default_cfg["input_size"][-1] != network.pixels:
        try:
            model = make(img_size=network.pixels)
        except TypeError:
            return model.to("meta")  # takes images of any size
    return model.to("meta")


def record_network(network: Network) -> Rows:
    """Its operations in one training step with SGD, or in its forward pass, under autocast to float16 for halves."""
    from timm.layers import set_fused_attn

    set_fused_attn(not network.training)
    model = make_model(network).train(network.training)
    images = torch.empty(network.batch_size, 3, network.pixels, network.pixels, device="meta")
    targets = torch.zeros(network.batch_size, dtype=torch.long, device="meta")
    how = (network.batch_size, OperationRecorder("meta"), torch.float16 if network.halves else None)
    if not network.training:
        return summed(record_forward(model, model, images, *how).operations)

    def loss_of(batch: Any) -> torch.Tensor:
        output = model(batch[0])
        return nn.functional.cross_entropy(output[0] if isinstance(output, tuple) else output, batch[1])

    def optimizer(weights: Any) -> torch.optim.Optimizer:
        if network.network == VGG16:
            return torch.optim.Adam(weights, foreach=False)
        return torch.optim.SGD(weights, lr=0.1, momentum=0.9, nesterov=True, foreach=False)

    return summed(record_step(model, loss_of, optimizer, (images, targets), *how).operations)


def main() -> None:
    """Record what is missing and keep it; say which networks this timm does not know or cannot run."""
    recordings = read_recordings()
    missing = [one for one in dict.fromkeys(figure.network for figure in read_figures()) if one not in recordings]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of renamed networks
        for network in missing:
            try:
                recordings[network] = record_network(network)
            except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
                print(f"not recorded: {network.network}: {' '.join(str(error).split()):.120}", flush=True)
    write_recordings(recordings)
    print(f"{len(recordings)} networks recorded")


if __name__ == "__main__":
    main()
