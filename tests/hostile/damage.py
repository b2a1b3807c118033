"""Damaged files, as they come from disks, editors and strangers: the same ones for the same number."""

import json
import os
import random
import re
import sys
import time
from pathlib import Path

from epochbench.errors import InputError
from epochbench.records.store import load
from tests.benchmarkjson import benchmark_json
from tests.runfiles import run_lines

GOLDEN = Path(__file__).parents[1] / "records" / "benchmark-1.json"
SCALAR = re.compile(rb'(?<=[:\[,] )(?:-?\d[\d.eE+-]*|"[^"\n]*"|true|false|null)')
NUMBER = re.compile(rb"(?<=: )-?\d[\d.eE+-]*")
ODD = [
    *(b"null", b"true", b'""', b"[]", b"{}", b"[null]", b"[[1]]", b'{"a": {"b": []}}', b'"x"', b'"1.5"', b'"nan"'),
    *(b"0", b"-1", b"-0.0", b"1.5", b"1e-320", b"1e308", b"-1e308", b"9223372036854775807", b"9" * 400, b"1e999"),
    *(b"NaN", b"Infinity", b"-Infinity", b'"Infinity"', b'"\\ud800"', b'"\\u0000"', b'"\\u202e\\u001b[31m"'),
    *(b'"' + b"long " * 30_000 + b'"', b"[" * 500 + b"]" * 500, b'"cpu"', b'"ok"', b'"2026-03-01"', b"'x'"),
]
PREDICTION = {
    "kind": "prediction", "workload": "cnn", "recipe": "article", "card_name": "Tesla T4", "precision": "fp32",
    "step_seconds": 0.01, "low": 0.005, "high": 0.02, "unstarved_seconds": 0.008, "loading_seconds": 0.002,
    "evaluation_step_seconds": 0.004, "evaluation_low": 0.003, "evaluation_high": 0.006, "limited_by": "memory",
    "memory_bytes": 1000000000, "card_memory_bytes": 16000000000, "fits": True, "device": "cuda",
}  # fmt: skip
UNPREDICTED = {"kind": "prediction", "workload": "cnn", "recipe": "bf16", "reason": "it cannot be recorded"}


def whole_files():
    """Suffix → undamaged files: two run files, two JSONs of pytest-benchmark."""
    steps = {"phase_steps": 20, "phase_pass_seconds": 1.0, "waiting_seconds": 0.4, "forward_seconds": 0.3,
             "backward_seconds": 0.3, "compute_only_steps": 10, "compute_only_seconds": 0.3, "flops_per_step": 1e8,
             "energy_joules": 40.0, "energy_source": "nvml"}  # fmt: skip
    times = {"cpu": [[8.0, 8.2], [8.3, 8.1], [7.8, 8.0]], "cuda": [[1.0, 1.1], [1.02, 1.0], [0.99, 1.0]]}
    changes = {("cnn", "cpu", 0): steps, ("cnn", "cuda", 0): steps}
    plain = run_lines(workloads={"cnn": times}, changes=changes, options={"devices": ["cpu", "cuda"], "seed": 0})
    plain[-1:-1] = [PREDICTION | {"card": card} for card in ("t4", "h200")] + [UNPREDICTED]
    sweep = run_lines(
        run_id="sweep", label="desk", skipped={"xpu": "no driver"},
        workloads={f"size {size}": {"cpu": [size, size * 1.1], "cuda": [3.0, 3.1]} for size in (1, 4, 16)},
        changes={
            (f"size {size}",): {"sweep_of": "cnn", "sweep_axis": "size", "sweep_value": size} for size in (1, 4, 16)
        },
    )  # fmt: skip
    as_lines = ["".join(f"{json.dumps(line)}\n" for line in lines).encode() for lines in (plain, sweep)]
    return {".jsonl": as_lines, ".json": [json.dumps(benchmark_json(plain), indent=1).encode(), GOLDEN.read_bytes()]}


# -- each takes a random.Random and the bytes, and returns other bytes


def bytes_flipped(chance, raw):
    changed = bytearray(raw)
    for _ in range(chance.randint(1, 20)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(chance, raw):
    return raw[: chance.randrange(len(raw))]


def piece_gone(chance, raw):
    start = chance.randrange(len(raw))
    return raw[:start] + raw[start + chance.randint(1, 300) :]


def lines_doubled(chance, raw):
    lines = raw.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    return b"".join(lines[: place + 1] + lines[place : place + chance.randint(1, 5)] + lines[place + 1 :])


def lines_swapped(chance, raw):
    lines = raw.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def lines_gone(chance, raw):
    lines = raw.splitlines(keepends=True)
    return b"".join(line for line in lines if chance.random() < 0.8)


def fields_retyped(chance, raw):
    for _ in range(chance.choice([1, 1, 1, 3, 10])):
        found = list(SCALAR.finditer(raw))
        if not found:
            break
        one = chance.choice(found)
        raw = raw[: one.start()] + chance.choice(ODD) + raw[one.end() :]
    return raw


def numbers_changed(chance, raw):
    """Other numbers of the right kind in a tenth of the places, so that most of these files are read."""
    odd = (b"0", b"1", b"1e308", b"1e-300", b"5e-324", b"1000000000", b"0.001", b"7")

    def other(found):
        whole = b"." not in found[0] and b"e" not in found[0]
        return (
            chance.choice([one for one in odd if not whole or one.isdigit()]) if chance.random() < 0.1 else found[0]
        )

    return NUMBER.sub(other, raw)


def fields_renamed(chance, raw):
    names = list(dict.fromkeys(re.findall(rb'"(\w+)":', raw)))
    return raw.replace(b'"%s":' % chance.choice(names), b'"%s":' % chance.choice([*names, b"new field", b""]))


def names_doubled(chance, raw):
    found = list(re.finditer(rb'"\w+": [^,\[{]+,', raw))
    one = chance.choice(found)
    return raw[: one.end()] + b" " + chance.choice(found)[0] + raw[one.end() :]


def another_kind(chance, raw):
    kinds = (b"epoch", b"measurement", b"run", b"end", b"prediction", b"result", b"")
    return re.sub(rb'"kind": "\w*"', lambda found: b'"kind": "%s"' % chance.choice(kinds), raw)


def another_schema(chance, raw):
    version = chance.choice([b"0", b"-1", b"99", b"1.0", b'"1"', b"null", b"1e3"])
    return re.sub(rb'"schema": \d+', b'"schema": ' + version, raw)


def text_that_steers(chance, raw):
    marks = ["\u202e", "\x1b[2J", "\0", "\u2028", "\x9b", "\ufeff", "\ud800"]
    steering = chance.choice(marks).encode("utf-8", "surrogatepass")
    found = list(re.finditer(rb'(?<=: ")[^"\n]*', raw))
    one = chance.choice(found)
    return raw[: one.start()] + steering + raw[one.start() :]


def other_encoding(chance, raw):
    text = raw.decode("utf-8", "replace")
    return text.encode(chance.choice(["utf-16", "utf-16-be", "utf-8-sig", "utf-32", "cp037"]), "replace")


def other_ends_of_lines(chance, raw):
    return raw.replace(b"\n", chance.choice([b"\r\n", b"\r", b"\n\n", b"\n \t", b"\x00\n", b"\x0b"]))


def binary(chance, raw):
    heads = (b"", b"\x1f\x8b\x08", b"PK\x03\x04", b"\x89PNG\r\n", b"\x7fELF", b"\x80\x04", b"SQLite format 3\0")
    return chance.choice(heads) + chance.randbytes(chance.choice([0, 1, 100, 5000]))


def deep(chance, raw):
    inner = chance.choice([b"[" * 30 + b"]" * 30, b'{"a":' * 900 + b"1" + b"}" * 900, b"[" * 90_000])
    return raw.replace(b'"weights": "random"', b'"weights": ' + inner, 1)


def long_line(chance, raw):
    text = chance.choice([b"x", b"\\u00e9", "é".encode(), b"1,"]) * chance.choice([30_000, 1_000_000])
    return raw.replace(b'"weights": "random"', b'"weights": "' + text + b'"', 1)


DAMAGES = [
    bytes_flipped, cut, piece_gone, lines_doubled, lines_swapped, lines_gone, fields_retyped, fields_retyped,
    fields_retyped, numbers_changed, numbers_changed, fields_renamed, names_doubled, another_kind, another_schema,
    text_that_steers, other_encoding, other_ends_of_lines, binary, deep, long_line,
]  # fmt: skip


def damaged(number, whole):
    """(suffix, bytes, names of the damages) of the damaged file of that number; `whole` is of `whole_files`."""
    chance = random.Random(number)
    suffix = (".jsonl", ".json")[number % 2]
    raw, names = chance.choice(whole[suffix]), []
    for damage in chance.sample(DAMAGES, chance.choice([1, 1, 1, 2])):
        if raw and re.search(rb'"\w+": [^,\[{]+,', raw):
            raw = damage(chance, raw)
            names.append(damage.__name__)
    return suffix, raw, names


def no_files(folder):
    """What is at a path and no file: name → path. None of them may be waited for."""
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "folder.jsonl").mkdir()
    targets = {"zero": "/dev/zero", "loop": "loop.jsonl", "gone": "nowhere", "memory": "/proc/self/mem"}
    for name, target in targets.items():
        (folder / f"{name}.jsonl").symlink_to(target)
    return {path.stem: path for path in sorted(folder.iterdir())}


# -- files as large as they may be, or larger

WIDE = b', "x": "\xf0\x9f\x9a\x80'
"""One letter for which Python takes four bytes for each letter of the text."""


def bombs():
    """Name → what makes the pieces of a file that would cost much if nothing bounded it."""
    lines = run_lines(workloads={"cnn": {"cpu": [8.0]}})
    run, epoch = (json.dumps(line).encode() for line in (lines[0], lines[2]))
    start = epoch[:-1]
    return {
        "lines.jsonl": lambda: [run, *[b"\n" * 2**20] * 60],
        "lists.jsonl": lambda: [run, b"\n", start, b', "x": [', b"[]," * (2**20), b"[]]}\n"],
        "many lists.jsonl": lambda: [run, b"\n", *[start + b', "x": [' + b"[]," * 300_000 + b"[]]}\n"] * 60],
        "objects.jsonl": lambda: [run, b"\n", start, b', "x": [', b"{}," * (2**20), b"{}]}\n"],
        "one text.jsonl": lambda: [run, b"\n", start, b', "x": "', b"x" * (60 * 2**20), b'"}\n'],
        "texts.jsonl": lambda: [run, b"\n", *[start + b', "x": "' + b"x" * 4_000_000 + b'"}\n'] * 15],
        "wide texts.jsonl": lambda: [run, b"\n", *[start + WIDE + b"x" * 19_000 + b'"}\n'] * 3_000],
        "records.jsonl": lambda: [run, b"\n", *[epoch + b"\n"] * 100_000],
        "fields.jsonl": lambda: [run, b"\n", *[start + b', "f%d": 1}\n' % number for number in range(20_000)]],
        "names.jsonl": lambda: [run, b"\n", start, *[b', "n%d": 1' % number for number in range(100_000)], b"}\n"],
        "number.jsonl": lambda: [run, b"\n", start, b', "x": ', b"9" * 3_000_000, b"}\n"],
        "digits.jsonl": lambda: [run, b"\n", start, b', "x": 0.', b"9" * 3_000_000, b"}\n"],
        "nested.jsonl": lambda: [run, b"\n", start, b', "x": ', b"[" * 1_000_000, b"]" * 1_000_000, b"}\n"],
        "over.jsonl": lambda: [b" " * (65 * 2**20)],
        "blank.json": lambda: [b" " * (31 * 2**20)],
        "lists.json": lambda: [b'{"benchmarks": [', b"[]," * 199_000, b"[]]}"],
        "values.json": lambda: [b'{"benchmarks": [', b"1," * 1_999_000, b"1]}"],
        "texts.json": lambda: [b'{"benchmarks": ["', b"x" * (30 * 2**20), b'"]}'],
        "nested.json": lambda: [b'{"benchmarks":', b'{"a":' * 400_000],
        "over.json": lambda: [b"[" * (33 * 2**20)],
    }  # fmt: skip


def write(path, chunks):
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
    return path


def read(path):
    """(seconds of CPU time, why it was refused or None) of reading a file."""
    began = time.process_time()
    try:
        load(path)
        why = None
    except (InputError, FileNotFoundError) as error:
        why = str(error)
    return time.process_time() - began, why


def peak_bytes():
    """The largest memory of this process. Linux keeps in getrusage what the process was that started it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(folder, numbers):
    """Read all the damaged files and the bombs, and print as JSON what the worst of each took."""
    folder, whole, slowest = Path(folder), whole_files(), {}
    for number in range(numbers):
        suffix, raw, names = damaged(number, whole)
        slowest[f"{number} {' '.join(names)}"] = read(write(folder / f"bad{suffix}", [raw]))[0]
    peak = peak_bytes()
    exploded = {}
    for name, pieces in bombs().items():
        path = write(folder / name, pieces())
        exploded[name] = read(path)
        path.unlink()
    worst = max(slowest, key=slowest.get)
    told = {
        "worst": [worst, slowest[worst]], "peak_bytes": peak, "bombs": exploded,
        "peak_with_bombs_bytes": peak_bytes(),
    }  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
