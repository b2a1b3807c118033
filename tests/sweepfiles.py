"""Run files with a sweep in them, as plain JSON.

write_sweep(tmp_path / "a.jsonl", {16: {"cpu": [2, 2, 2], "cuda": [4, 4, 4]}, 64: …})
"""

from tests.runfiles import run_lines, write_lines


def write_sweep(path, points, *, of="cnn", axis="batch size", short="batch", beside=None, **what):
    """One run with a race for each value of the axis: points is value → device → seconds a replicate.

    `beside` are the workloads of the run that are no points; `what` goes to `run_lines`, whose `failed` and `skipped`
    concern the points by the name "cnn, batch 64".
    """
    named = {f"{of}, {short} {value}": value for value in points}
    workloads = {f"{of}, {short} {value}": times for value, times in points.items()}
    sizes = {(name,): {"batch_size": value} for name, value in named.items() if axis == "batch size"}
    changes = {**sizes, **what.pop("changes", {})}
    lines = run_lines(run_id=path.stem, workloads={**(beside or {}), **workloads}, changes=changes, **what)
    for line in lines:
        if line["kind"] == "measurement" and line["workload"] in named:
            line |= {"sweep_of": of, "sweep_axis": axis, "sweep_value": named[line["workload"]]}
    return write_lines(path, lines)


def at(*ratios, seconds=8.0):
    """Points at 1, 4, 16, … where the GPU is so many times faster, in 3 replicates without any spread."""
    return {4**place: {"cpu": [seconds] * 3, "cuda": [seconds / ratio] * 3} for place, ratio in enumerate(ratios)}
