"""Synthetic JSONs of pytest-benchmark, made of the lines of `runfiles.run_lines` without the code under test."""

import json

MACHINE_INFO = {
    "node": "owners-laptop",
    "system": "Linux",
    "machine": "x86_64",
    "python_version": "3.11.7",
    "cpu": {"brand_raw": "AMD EPYC", "count": 2, "hz_actual": [2_596_122_000, 0]},
}
WHO = ("workload", "recipe", "device")


def benchmark_json(lines, *, version=1, machine_info=MACHINE_INFO, others=0):
    """The content of the JSON of that run; `version` 0 is of before the run was in it; `others` are plain tests."""
    run, records = lines[0], lines[1:]
    entries = [{"name": f"test_{n}", "extra_info": {}, "stats": {"data": [0.1]}} for n in range(others)]
    measured = [one for one in records if one["kind"] == "measurement" and one["status"] != "skipped"]
    for who in dict.fromkeys(tuple(one[name] for name in WHO) for one in measured):
        mine = [one for one in measured if tuple(one[name] for name in WHO) == who]
        entries.append({"name": f"test_{who[0]}[{who[2]}]", "extra_info": _info(run, mine, records, version)})
    return {
        "machine_info": machine_info,
        "commit_info": {"id": "unversioned"},
        "benchmarks": entries,
        "datetime": run["started_at"],
        "version": "5.3.1",
    }


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=4), encoding="utf-8")
    return path


def _info(run, measured, records, version):
    shared = {name: measured[0].get(name) for name in (*WHO, "data", "weights", "batch_size", "precision")}
    shared |= {name: measured[0].get(name) for name in ("epoch_steps", "steps_per_epoch", "job_epochs", "threads")}
    replicates = []
    for one in measured:
        epochs = [
            epoch
            for epoch in records
            if epoch["kind"] == "epoch" and all(epoch[name] == one[name] for name in (*WHO, "replicate"))
        ]
        seconds = [epoch["seconds"] for epoch in epochs if not epoch["warmup"]]
        replicate = {"replicate": one["replicate"], "status": one["status"], "epoch_seconds": seconds}
        if version:
            replicate |= {name: value for name, value in one.items() if name not in ("kind", *WHO)}
            replicate["epochs"] = [{k: v for k, v in epoch.items() if k not in ("kind", *WHO)} for epoch in epochs]
        replicates.append(replicate)
    return shared | ({"schema": version, "run": run} if version else {}) | {"replicates": replicates}
