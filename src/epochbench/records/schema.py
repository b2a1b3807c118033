"""The run file: one JSON object a line, each of one of the five kinds below.

Figures are top-level fields and their units are in the names. A record holds raw times and facts; whatever can be
computed on reading (means, speedups, intervals) is not stored. Unknown fields are kept, so that a newer file loses
nothing when it is read and exported. NaN and Infinity are no JSON: they are written as null.

History of the schema
    1   run, epoch, measurement and end.
    2   prediction: what cards that are not here would take; in later files with `host_seconds`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

SCHEMA_VERSION = 2

PHASES = ("waiting", "transfer", "forward", "backward", "optimizer", "reading")
"""Waiting for data, copying the batch to the device, forward with the loss, backward, the optimizer's step, and
reading the loss, in the order of a step."""

Status = Literal["ok", "skipped", "failed", "out_of_memory", "timeout", "interrupted", "invalid"]


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, str | bool):  # pydantic would make numbers of true and of the texts "nan" and "inf"
        raise ValueError("a number is wanted")
    return None if isinstance(value, float) and not math.isfinite(value) else value


Finite = Annotated[float | None, BeforeValidator(_finite_or_none)]
LONGEST_SECONDS = 1e12
"""Some 30,000 years: no time of ours, and no sum of so many, is beyond it."""
Seconds = Annotated[Annotated[float, Field(ge=0, le=LONGEST_SECONDS)] | None, BeforeValidator(_finite_or_none)]
Positive = Annotated[Annotated[float, Field(gt=0, le=LONGEST_SECONDS)] | None, BeforeValidator(_finite_or_none)]
Amount = Annotated[Annotated[float, Field(ge=0)] | None, BeforeValidator(_finite_or_none)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0)]


class Record(BaseModel):
    """What all records share: frozen, unknown fields kept."""

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="null")


class DeviceFacts(Record):
    """One device as the probe saw it; `reason` says why it cannot be used where `available` is false.

    `refuses` says for a precision why a device that can be used does not train in it.
    """

    device: Name
    available: bool
    reason: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    capability: str | None = None
    driver: str | None = None
    refuses: dict[str, str] = {}


class Machine(Record):
    """The machine, without anything that names its owner: no host name, user, path, serial or UUID."""

    system: str | None = None
    architecture: str | None = None
    cpu_name: str | None = None
    cpus_present: int | None = None
    cpus_usable: int | None = None
    cpu_quota: float | None = None
    cpu_capability: str | None = None
    memory_bytes: int | None = None
    thread_environment: dict[str, str] = {}
    power: str | None = None
    data_file_system: str | None = None
    devices: tuple[DeviceFacts, ...] = ()


class Software(Record):
    """Versions. `torch` is the full build name, such as 2.14.1+cu130."""

    epochbench: str | None = None
    python: str | None = None
    torch: str | None = None
    torchvision: str | None = None
    cuda: str | None = None
    cudnn: str | None = None


class RunRecord(Record):
    """The first line: which machine, which software, which options, and how many races are to be run.

    `resumes` is the id of the run that was cut and that this one goes on with.
    """

    kind: Literal["run"] = "run"
    schema_: int = Field(alias="schema", default=SCHEMA_VERSION)
    run_id: Name
    started_at: str
    label: str | None = None
    machine: Machine = Machine()
    software: Software = Software()
    options: dict[str, Any] = {}
    races: Count | None = None
    resumes: str | None = None

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="null", populate_by_name=True)


class EpochRecord(Record):
    """One epoch, written as it ends. `seconds` holds training alone; the evaluation is timed apart.

    `epoch` counts from 1; the warm-up is epoch 0 with `warmup` true. `steps` and `samples` are those done in this
    epoch, which a quick run cuts short. `first_batch_seconds`, a part of `seconds`, is there where each epoch starts
    processes of the loader: it does not grow with the steps. `at_seconds` is when it ended, counted from the start
    of the run.
    """

    kind: Literal["epoch"] = "epoch"
    workload: Name
    recipe: Name
    device: Name
    replicate: Count
    epoch: Count
    warmup: bool = False
    steps: Count
    samples: Count
    seconds: Seconds
    first_batch_seconds: Seconds = None
    evaluation_steps: Count = 0
    evaluation_seconds: Seconds = None
    mean_loss: Finite = None
    at_seconds: Seconds = None


class MeasurementRecord(Record):
    """One workload × recipe × device × replicate, written when it ended, however it ended.

    `status` other than ok comes with a `reason`. A skipped device has one such record a workload, with `replicate`
    null. `job_epochs`, `steps_per_epoch` and `evaluation_steps_per_epoch` describe the real job, whole, while
    `epoch_steps` is what one timed epoch did here. `losses` are those of the first training steps, the warm-up's
    first; those without dropout are of a pass apart, in one replicate of a device, which draws all other random
    numbers on the CPU, and none where they cannot be drawn so. `place` counts the measurements
    of a race from 0, in the order in which they ran. `energy_joules` is of the timed epochs with their evaluations,
    by the counter named in `energy_source` (nvml or rapl); both are null where it was not measured. `data_left_out`
    counts the files of the data that could not be read, `data_broken_metadata` those whose metadata alone could not.
    `other_races` counts the other runs of epochbench that raced on this machine meanwhile.
    """

    kind: Literal["measurement"] = "measurement"
    workload: Name
    recipe: Name
    device: Name
    replicate: Count | None = None
    place: Count | None = None
    status: Status
    reason: str | None = None
    at_seconds: Seconds = None

    # the work
    sweep_of: str | None = None
    sweep_axis: str | None = None
    sweep_value: Finite = None
    data: str | None = None
    data_fingerprint: str | None = None
    data_left_out: Count | None = None
    data_broken_metadata: Count | None = None
    weights: str | None = None
    batch_size: Count | None = None
    precision: str | None = None
    recipe_settings: dict[str, Any] | None = None
    recipe_left_out: tuple[str, ...] | None = None
    seed: int | None = None
    job_epochs: Count | None = None
    steps_per_epoch: Count | None = None
    evaluation_steps_per_epoch: Count | None = None
    epoch_steps: Count | None = None
    whole_epochs: bool | None = None
    train_samples: Count | None = None
    test_samples: Count | None = None
    parameters: Count | None = None
    trainable_parameters: Count | None = None
    weights_hash: str | None = None
    order_hash: str | None = None
    batches_hash: str | None = None

    # the start-up: each its own stretch of time, in this order
    process_seconds: Seconds = None
    context_seconds: Seconds = None
    data_seconds: Seconds = None
    model_seconds: Seconds = None
    first_step_seconds: Seconds = None
    caching_seconds: Seconds = None
    caching_samples: Count | None = None

    # where the time of a step goes, in a pass of its own, in one replicate of a device; sums over `phase_steps`
    phase_steps: Count | None = None
    phase_pass_seconds: Seconds = None
    waiting_seconds: Seconds = None
    transfer_seconds: Seconds = None
    forward_seconds: Seconds = None
    backward_seconds: Seconds = None
    optimizer_seconds: Seconds = None
    reading_seconds: Seconds = None
    compute_only_steps: Count | None = None
    compute_only_samples: Count | None = None
    compute_only_seconds: Seconds = None
    part_samples: Count | None = None
    part_steps: Count | None = None
    part_seconds: Seconds = None
    single_steps: Count | None = None
    submit_seconds: Seconds = None
    single_step_seconds: Seconds = None
    unread_steps: Count | None = None
    unread_seconds: Seconds = None
    flops_per_step: Amount = None
    matmul_flops_per_second: Amount = None
    passes_apart_reason: str | None = None

    # what else went on
    other_cpu_share: Finite = None
    throttled: tuple[str, ...] | None = None
    foreign_gpu_processes: Count | None = None
    other_races: Count | None = None
    flushes_denormals: bool | None = None
    emulated_precision: bool | None = None

    # what it took and what it learned
    threads: Count | None = None
    deterministic: bool | None = None
    cudnn_benchmark: bool | None = None
    peak_device_bytes: Count | None = None
    peak_process_bytes: Count | None = None
    energy_joules: Amount = None
    energy_source: str | None = None
    losses: tuple[Finite, ...] = ()
    losses_without_dropout: tuple[Finite, ...] | None = None
    test_loss: Finite = None
    accuracy: Finite = None

    synchronized: bool | None = None
    isolation: str | None = None


class PredictionRecord(Record):
    """What one card would take for a step of a workload under a recipe; never a measurement.

    All times are in seconds; `low` and `high` are of the interval of 90% around `step_seconds`, and likewise of a
    step of the evaluation. `loading_seconds` of a step, as measured here, are in `step_seconds`, and
    `unstarved_seconds` are without them. `host_seconds` of a step are of Python besides calling torch, as measured
    here: 0 where there are no more than in ordinary networks, null where it is not known. `device` is the device of
    this machine that is such a card, null for the others. Where nothing could be predicted there is one record,
    without a card, whose `reason` says why.
    """

    kind: Literal["prediction"] = "prediction"
    workload: Name
    recipe: Name
    card: Name | None = None
    card_name: Name | None = None
    device: Name | None = None
    precision: Name | None = None
    step_seconds: Positive = None
    low: Positive = None
    high: Positive = None
    unstarved_seconds: Positive = None
    loading_seconds: Seconds = None
    host_seconds: Seconds = None
    evaluation_step_seconds: Positive = None
    evaluation_low: Positive = None
    evaluation_high: Positive = None
    limited_by: Literal["compute", "memory", "launches", "loader", "host"] | None = None
    memory_bytes: Count | None = None
    card_memory_bytes: Count | None = None
    fits: bool | None = None
    note: str | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _in_its_interval(self) -> PredictionRecord:
        for low, value, high in (
            (self.low, self.step_seconds, self.high),
            (self.evaluation_low, self.evaluation_step_seconds, self.evaluation_high),
        ):
            if None not in (low, value, high) and not low <= value <= high:
                raise ValueError(f"a prediction lies in its interval, and {value:g} is not from {low:g} to {high:g}")
        return self


class EndRecord(Record):
    """The last line of a run that was not cut off."""

    kind: Literal["end"] = "end"
    status: Literal["finished", "interrupted", "failed"]
    reason: str | None = None
    seconds: Seconds = None
    ended_at: str | None = None


AnyRecord = Annotated[
    RunRecord | EpochRecord | MeasurementRecord | PredictionRecord | EndRecord, Field(discriminator="kind")
]
RECORD: TypeAdapter[RunRecord | EpochRecord | MeasurementRecord | PredictionRecord | EndRecord] = TypeAdapter(
    AnyRecord
)
