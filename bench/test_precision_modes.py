"""What do the precisions gain? The CNN in fp32, TF32, bf16 and fp16, each against fp32 on the same device.

    pytest bench/test_precision_modes.py --benchmark-only

A mode that a device refuses is skipped, and one that it emulates is told. The gains and whether the losses stay the
same are in the report's table of recipes. ResNet50 takes minutes on a CPU, so its modes are raced on accelerators.
"""

from dataclasses import replace

import pytest
import torch

from models import cnn, resnet50_transfer

modes = pytest.mark.race_recipes("article", "tf32", "bf16", "fp16")


@modes
def test_cnn_in_each_precision(race, race_data):
    race(replace(cnn.workload(race_data), name="cnn, precision modes", quick_steps=100))


if torch.accelerator.is_available():

    @modes
    def test_resnet50_in_each_precision(race, race_data):
        race(replace(resnet50_transfer.workload(race_data), name="resnet50, precision modes", quick_steps=10))
