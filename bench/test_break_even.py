"""From which batch size, and from which width on, is the GPU worth it? A race at each size.

pytest bench/test_break_even.py --benchmark-only
"""

from dataclasses import replace

import pytest

from epochbench.workload import Sweep
from models import cnn, perceptron

BATCH_SIZES = [2**power for power in range(11)]  # 1 to 1024
WIDTHS = [2**power for power in range(4, 13)]  # 16 to 4096
SAMPLES, FEWEST_STEPS, MOST_STEPS = 8192, 8, 400


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_batch_size(race, race_data, pytestconfig, batch_size):
    if pytestconfig.getoption("race_batch_size"):
        pytest.fail("--race-batch-size sets what this sweeps over; leave it out", pytrace=False)
    race(
        replace(
            cnn.workload(race_data),
            name=f"cnn, batch {batch_size}",
            sweep=Sweep("cnn", "batch size", batch_size),
            batch_size=batch_size,
            test_data=None,
            quick_steps=max(FEWEST_STEPS, min(MOST_STEPS, SAMPLES // batch_size)),
        )
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_width(race, race_data, width):
    race(
        replace(
            perceptron.workload(width, race_data),
            name=f"perceptron, width {width}",
            sweep=Sweep("perceptron", "width", width),
        )
    )
