"""Records hold Python's own numbers, whatever gave them."""

import json

import numpy

from epochbench.records.schema import EpochRecord, MeasurementRecord


def test_numpys_numbers_become_plain_ones_and_what_is_none_becomes_null():
    who = {"workload": "cnn", "recipe": "article", "device": "cpu"}
    epoch = EpochRecord(
        **who, replicate=1, epoch=1, samples=64, steps=numpy.int64(3), seconds=numpy.float32(1.5),
        mean_loss=numpy.float32("nan"),
    )  # fmt: skip
    assert (type(epoch.steps), type(epoch.seconds)) == (int, float)
    written = json.loads(epoch.model_dump_json())
    assert (written["steps"], written["seconds"], written["mean_loss"]) == (3, 1.5, None)
    losses = [numpy.float32(0.5), numpy.float64("inf")]
    measurement = MeasurementRecord(**who, status="ok", losses=losses, accuracy=numpy.float32(0.25))
    assert json.loads(measurement.model_dump_json())["losses"] == [0.5, None]
    assert measurement.accuracy == 0.25
