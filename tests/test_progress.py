"""The line that says where a race is: its words, on a terminal and off it."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from epochbench.measure.contenders import Standing
from epochbench.progress import sentence

# The epochs take longer than the second after which the line is written anew.
SUITE = """
import time
import torch
from torch import nn
from epochbench import Workload

def step(model, batch):
    time.sleep(0.05)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def test_crawl(race):
    race(
        Workload(
            name="crawl",
            model=lambda: nn.Linear(4, 3),
            train_data=(torch.randn(64, 4), torch.randint(3, (64,))),
            step=step,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            batch_size=16,
            epochs=6,
            quick_steps=24,
        )
    )

def test_other(race):
    pass
"""
OPTIONS = ["--benchmark-only", "--race-devices=cpu", "--race-replicates=2", "-p", "no:cacheprovider"]

TIMED = Standing(
    workload="cnn",
    contender="cuda",
    replicate=2,
    replicates=4,
    left=5,
    seconds_left=41.2,
    counters=[1, 3, 120, 300, 0],
)


def test_a_timed_epoch_is_told_with_its_step_and_what_is_left():
    assert sentence(TIMED, 2) == (
        "cnn · cuda · replicate 2/4 · epoch 1/3 · step 120/300 · 5 left, about 0:41 · then 2 races"
    )


def test_one_race_that_follows_is_one_race_and_none_is_not_told():
    assert sentence(TIMED, 1).endswith(" · 5 left, about 0:41 · then 1 race")
    assert sentence(TIMED, 0).endswith(" · 5 left, about 0:41")


def test_seconds_left_are_minutes_and_seconds_once_they_are_known():
    assert sentence(replace(TIMED, seconds_left=None), 0).endswith(" · 5 left")
    assert sentence(replace(TIMED, seconds_left=0.0), 0).endswith(" · 5 left, about 0:00")
    assert sentence(replace(TIMED, seconds_left=59.7), 0).endswith(" · 5 left, about 1:00")
    assert sentence(replace(TIMED, seconds_left=125.0), 0).endswith(" · 5 left, about 2:05")


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        ([0, 0, 0, 0, 0], "starting"),
        ([0, 3, 7, 50, 0], "warm-up · step 7/50"),
        ([3, 3, 300, 300, 0], "epoch 3/3 · step 300/300"),
        ([3, 3, 4, 20, 1], "epoch 3/3 · evaluating 4/20"),
    ],
)
def test_each_stretch_of_a_measurement_has_its_words(counters, words):
    assert sentence(replace(TIMED, counters=counters), 2) == (
        f"cnn · cuda · replicate 2/4 · {words} · 5 left, about 0:41 · then 2 races"
    )


def test_the_preparation_names_no_device_and_no_replicate():
    preparing = replace(TIMED, contender="", replicate=0, left=8, seconds_left=None, counters=[0] * 5)
    assert sentence(preparing, 0) == "cnn · preparing the data · 8 left"


def on_a_terminal(folder, columns):
    """pytest on a terminal of that many columns → (its exit code, every byte it wrote, as text)."""
    import fcntl
    import pty
    import struct
    import termios

    (folder / "bench_crawl.py").write_text(SUITE)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "CI")}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "bench_crawl.py", *OPTIONS],
        cwd=folder,
        env=environment | {"TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    limit = threading.Timer(90, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    written = bytearray()
    with suppress(OSError):  # so Linux tells that the other end is closed
        while piece := os.read(master, 4096):
            written += piece
    os.close(master)
    code = process.wait()
    limit.cancel()
    return code, written.decode()


def screen(written):
    """What a terminal that is wide enough shows in the end, and every state in which its last row stood."""
    rows, states, column = [""], [], 0
    for token in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written):
        if token == "\r":
            column = 0
        elif token == "\n":
            rows.append("")
            column = 0
        elif token == "\x1b[K":
            rows[-1] = rows[-1][:column]
        elif not token.startswith("\x1b"):
            rows[-1] = rows[-1][:column].ljust(column) + token + rows[-1][column + len(token) :]
            column += len(token)
        states.append(rows[-1])
    return rows, states


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("columns", [100, 50])
def test_on_a_terminal_one_live_line_fits_it_and_is_erased(tmp_path, columns):
    code, written = on_a_terminal(tmp_path, columns)
    assert code == 0, written
    rows, states = screen(written)
    live = [state for state in states if state.startswith("crawl · ")]
    assert len(set(live)) > 3
    assert max(map(len, live)) < columns
    assert not [row for row in rows if "crawl · " in row or "looking at" in row]
    assert "\x1b[K" in written
    if columns == 100:
        timed = re.compile(
            r"crawl · cpu · replicate ([12])/2 · epoch [1-6]/6 · step [0-4]/4 · "
            r"[12] left(, about 0:\d\d)? · then 1 race"
        )
        assert {match[1] for state in live if (match := timed.fullmatch(state))} == {"1", "2"}
        # Before one measurement has ended nobody knows how long one takes.
        assert not [state for state in live if "replicate 1/2" in state and "about" in state]
        assert [state for state in live if "replicate 2/2" in state and "1 left, about 0:0" in state]


def test_off_a_terminal_a_measurement_is_one_line(tmp_path):
    (tmp_path / "bench_crawl.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "bench_crawl.py", *OPTIONS]
    ran = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=90)
    assert ran.returncode == 0, ran.stdout
    told = [line for line in ran.stdout.splitlines() if line.startswith("crawl · ")]
    (first, second) = [line for line in told if "replicate" in line]
    assert first.startswith("crawl · cpu · replicate 1/2 · ")
    assert second.startswith("crawl · cpu · replicate 2/2 · ")
    assert len(told) <= 3  # and one for the preparation, where it takes a second
    assert "\x1b" not in ran.stdout
    assert "\r" not in ran.stdout
