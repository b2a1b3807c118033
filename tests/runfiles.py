"""Synthetic run files for tests: plain JSON, so that no code under test has a hand in what it reads.

    make_run(tmp_path / "a.jsonl", label="pc", workloads={"cnn": {"cpu": [8.0, 8.3], "cuda": [1, 1.1]}})

writes a finished run of one workload with two replicates a device. A replicate is one number (its one timed
epoch) or a list of numbers (its timed epochs). All the rest has defaults; `changes` overrides any of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NO_DRIVER = "no NVIDIA driver"

MACHINE: dict[str, Any] = {
    "system": "Linux",
    "architecture": "x86_64",
    "cpu_name": "Intel(R) Xeon(R) CPU @ 2.20GHz",
    "cpus_present": 8,
    "cpus_usable": 2,
    "cpu_quota": 2.0,
    "cpu_capability": "AVX2",
    "memory_bytes": 13_000_000_000,
}
SOFTWARE: dict[str, Any] = {
    "epochbench": "0.1.0",
    "python": "3.11.7",
    "torch": "2.14.1+cu130",
    "torchvision": "0.29.1+cu130",
    "cuda": "13.0",
    "cudnn": "9.1.0",
}
GPU: dict[str, Any] = {
    "device": "cuda",
    "available": True,
    "name": "NVIDIA RTX 3090",
    "memory_bytes": 24_000_000_000,
    "capability": "8.6",
    "driver": "580.10",
}

_DIGITS = {"data": "scikit-learn digits, 28x28 (embedded)", "data_fingerprint": "sha256:d161"}
_MNIST_JOB = {
    **_DIGITS,
    "weights": "random",
    "batch_size": 64,
    "job_epochs": 10,
    "steps_per_epoch": 938,
    "evaluation_steps_per_epoch": 157,
    "train_samples": 60_000,
    "test_samples": 10_000,
}
WORKLOADS: dict[str, dict[str, Any]] = {
    "cnn": {
        **_MNIST_JOB,
        "epoch_steps": 100,
        "evaluation_steps": 17,
        "parameters": 8_490,
        "trainable_parameters": 8_490,
    },
    "inception_a": {
        **_MNIST_JOB,
        "epoch_steps": 50,
        "evaluation_steps": 8,
        "parameters": 89_052,
        "trainable_parameters": 89_052,
    },
    "resnet50_transfer": {
        "data": "two classes of photographs (embedded)",
        "data_fingerprint": "sha256:9090",
        "weights": "random frozen backbone",
        "batch_size": 32,
        "job_epochs": 10,
        "steps_per_epoch": 625,
        "evaluation_steps_per_epoch": 157,
        "epoch_steps": 2,
        "evaluation_steps": 1,
        "train_samples": 20_000,
        "test_samples": 5_000,
        "parameters": 23_512_130,
        "trainable_parameters": 4_098,
    },
    "tabular": {
        "data": "scikit-learn breast_cancer",
        "data_fingerprint": "sha256:bc01",
        "weights": "random",
        "batch_size": 455,
        "job_epochs": 50,
        "steps_per_epoch": 1,
        "evaluation_steps_per_epoch": 1,
        "epoch_steps": 1,
        "evaluation_steps": 1,
        "train_samples": 455,
        "test_samples": 114,
        "parameters": 6_274,
        "trainable_parameters": 6_274,
    },
}
START_UP = {
    "cpu": {
        "process_seconds": 0.2,
        "context_seconds": 0.0,
        "data_seconds": 0.5,
        "model_seconds": 0.1,
        "first_step_seconds": 0.2,
    },
    "accelerator": {
        "process_seconds": 0.2,
        "context_seconds": 0.3,
        "data_seconds": 0.5,
        "model_seconds": 0.1,
        "first_step_seconds": 0.9,
    },
}


def falling_losses(steps: int = 32) -> list[float]:
    """(steps,) 2.3 falling by 3% a step, which is what a training that works looks like."""
    return [2.3 * 0.97**step for step in range(steps)]


def write_lines(path: Path, lines: Sequence[Mapping[str, Any] | str], *, cut: str = "") -> Path:
    """Write one JSON object (or one given text) a line; `cut` is put behind them without a newline."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts) + cut, encoding="utf-8")
    return path


def make_run(path: Path, **what: Any) -> Path:
    """Write the run of `run_lines(**what)`; `cut` is the beginning of a last line that never ended."""
    cut = what.pop("cut", "")
    if cut:
        what["end"] = None
    what.setdefault("run_id", path.stem)
    return write_lines(path, run_lines(**what), cut=cut)


def run_lines(
    *,
    run_id: str = "run-1",
    started_at: str = "2026-03-01T10:00:00Z",
    label: str | None = None,
    machine: Mapping[str, Any] | None = None,
    software: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    resumes: str | None = None,
    workloads: Mapping[str, Mapping[str, Sequence[float | Sequence[float]]]] | None = None,
    skipped: Mapping[str, str] | None = None,
    failed: Mapping[tuple[str, str, int], tuple[str, str]] | None = None,
    changes: Mapping[tuple[Any, ...], Mapping[str, Any]] | None = None,
    recipe: str = "article",
    losses: Sequence[float | None] | None = None,
    evaluation_share: float = 0.2,
    predictions: Sequence[Mapping[str, Any]] = (),
    end: str | None = "finished",
) -> list[dict[str, Any]]:
    """The records of one run, as dicts, in the order in which a run writes them.

    workloads  {"cnn": {"cpu": [8.0, 8.3, 7.8], "cuda": [1, 1.02, .99]}}: seconds a replicate
    skipped    {"cuda": "no NVIDIA driver"}: one skipped record for each workload
    failed     {("cnn", "cuda", 1): ("out_of_memory", "CUDA out of memory")}: it ended so, without epochs
    changes    {("cnn",): {...}, ("cnn", "cuda"): {...}, ("cnn", "cuda", 1): {...}}: fields of measurements;
               "evaluation_steps" and "mean_loss" change the epochs. The narrower key wins.
    predictions  records of predictions, see `prediction`
    end        status of the end record; None writes none (the run was cut)
    """
    if workloads is None:
        workloads = {"cnn": {"cpu": [8.0, 8.3, 7.8, 8.1], "cuda": [1, 1.02, 0.99, 1.01]}}
    skipped, failed, changes = dict(skipped or {}), dict(failed or {}), dict(changes or {})
    devices = _devices(workloads, skipped)
    run = {
        "kind": "run",
        "schema": 1,
        "run_id": run_id,
        "started_at": started_at,
        "label": label,
        "machine": {**MACHINE, "devices": devices, **(machine or {})},
        "software": {**SOFTWARE, **(software or {})},
        "options": dict(options or {}),
        "resumes": resumes,
    }
    lines: list[dict[str, Any]] = [run]
    clock = 0.0
    for workload, times in workloads.items():
        for device, reason in skipped.items():
            lines.append(
                {
                    "kind": "measurement",
                    "workload": workload,
                    "recipe": recipe,
                    "device": device,
                    "replicate": None,
                    "status": "skipped",
                    "reason": reason,
                    "at_seconds": clock,
                }
            )
        for place, (device, replicate, seconds) in enumerate(_interleaved(times)):
            facts = {**WORKLOADS.get(workload, _MNIST_JOB | {"epoch_steps": 100, "evaluation_steps": 17})}
            for key in ((workload,), (workload, device), (workload, device, replicate)):
                facts.update(changes.get(key, {}))
            who = {"workload": workload, "recipe": recipe, "device": device, "replicate": replicate}
            status, reason = failed.get((workload, device, replicate), ("ok", None))
            if status == "ok":
                epochs = _epochs(who, facts, seconds, clock, evaluation_share)
                lines += epochs
                clock = epochs[-1]["at_seconds"]
            lines.append(_measurement(who, facts, place, status, reason, clock, losses))
    lines += [dict(one) for one in predictions]
    if end is not None:
        lines.append(
            {
                "kind": "end",
                "status": end,
                "reason": None if end == "finished" else "Ctrl-C",
                "seconds": clock,
                "ended_at": "2026-03-01T10:30:00Z",
            }
        )
    return lines


def prediction(workload: str, card: str, step: float, low: float, high: float, **changes: Any) -> dict[str, Any]:
    """The record of one predicted card; an evaluation's step takes a quarter of a training step."""
    return {
        "kind": "prediction", "workload": workload, "recipe": "article", "card": card, "card_name": card.upper(),
        "device": None, "precision": "fp32", "step_seconds": step, "low": low, "high": high,
        "unstarved_seconds": step, "loading_seconds": None, "evaluation_step_seconds": step / 4,
        "evaluation_low": low / 4, "evaluation_high": high / 4, "limited_by": "launches",
        "memory_bytes": 2_000_000_000, "card_memory_bytes": 16_000_000_000, "fits": True, "note": None,
        "reason": None,
    } | changes  # fmt: skip


def _devices(workloads: Mapping[str, Mapping[str, Any]], skipped: Mapping[str, str]) -> list[dict[str, Any]]:
    used = dict.fromkeys(device for times in workloads.values() for device in times if device != "cpu")
    return (
        [{"device": "cpu", "available": True, "name": MACHINE["cpu_name"]}]
        + [{**GPU, "device": device} for device in used]
        + [
            {"device": device, "available": False, "reason": reason}
            for device, reason in skipped.items()
            if device not in used
        ]
    )


def _interleaved(times: Mapping[str, Sequence[Any]]) -> list[tuple[str, int, list[float]]]:
    """A B B A A B B A: (device, replicate, its timed epochs), in the order in which they ran."""
    order = []
    for replicate in range(max((len(of_device) for of_device in times.values()), default=0)):
        block = [device for device in times if replicate < len(times[device])]
        for device in block if replicate % 2 == 0 else block[::-1]:
            seconds = times[device][replicate]
            epochs = list(seconds) if isinstance(seconds, list | tuple) else [seconds]
            order.append((device, replicate, epochs))
    return order


def _epochs(
    who: Mapping[str, Any], facts: Mapping[str, Any], seconds: list[float], clock: float, share: float
) -> list[dict[str, Any]]:
    """The warm-up (two steps) and the timed epochs of one measurement."""
    records = []
    for epoch, of_epoch in enumerate([0.1, *seconds]):
        steps = 2 if epoch == 0 else facts["epoch_steps"]
        evaluated = epoch > 0
        clock += min(of_epoch or 0.0, 1e6) * (1 + share * evaluated)
        records.append(
            {
                "kind": "epoch",
                **who,
                "epoch": epoch,
                "warmup": epoch == 0,
                "steps": steps,
                "samples": steps * facts["batch_size"],
                "seconds": of_epoch,
                "evaluation_steps": facts["evaluation_steps"] if evaluated else 0,
                "evaluation_seconds": (of_epoch or 0.0) * share if evaluated else None,
                "mean_loss": facts.get("mean_loss", 2.0 / (1 + epoch)),
                "at_seconds": clock,
            }
        )
    return records


def _measurement(
    who: Mapping[str, Any],
    facts: Mapping[str, Any],
    place: int,
    status: str,
    reason: str | None,
    clock: float,
    losses: Sequence[float | None] | None,
) -> dict[str, Any]:
    fields = {key: value for key, value in facts.items() if key not in ("evaluation_steps", "mean_loss")}
    ok = status == "ok"
    return {
        "kind": "measurement",
        **who,
        "place": place,
        "status": status,
        "reason": reason,
        "at_seconds": clock,
        "precision": "fp32",
        "seed": 0,
        "whole_epochs": False,
        "weights_hash": "sha256:w0",
        "order_hash": "sha256:o0",
        **START_UP["cpu" if who["device"] == "cpu" else "accelerator"],
        "threads": 2,
        "peak_device_bytes": None if who["device"] == "cpu" else 300_000_000,
        "peak_process_bytes": 900_000_000,
        "losses": (falling_losses() if losses is None else list(losses)) if ok else [],
        "test_loss": 0.4 if ok else None,
        "accuracy": 0.9 if ok else None,
        "synchronized": True,
        "isolation": "process",
        **fields,
    }


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))
