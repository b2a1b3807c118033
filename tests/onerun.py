"""The records of one small run, for tests of how they are written."""

from epochbench.records.schema import EpochRecord, RunRecord

RUN = RunRecord(run_id="r", started_at="2026-03-01T10:00:00Z")
WHO = {"workload": "cnn", "recipe": "article", "device": "cpu", "replicate": 1}


def epoch(number, **changes):
    """That epoch of one measurement; it took as many seconds as it is called."""
    return EpochRecord(**WHO | {"epoch": number, "steps": 3, "samples": 9, "seconds": float(number)} | changes)
