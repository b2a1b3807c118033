"""Damaged CSVs and choices: each is read, or refused in one line that names the file, the line and the column."""

import json
import os
import random
import re
import warnings
from pathlib import Path

import pytest

from epochbench.errors import InputError
from epochbench.prediction.hardware import KNOWN, load_hardware
from epochbench.records.store import load
from epochbench.report.html import render_page
from epochbench.report.published import read_published
from epochbench.tuning.choices import read_choices
from tests.hostile.damage import ODD, bytes_flipped, cut, lines_doubled, lines_swapped, other_encoding, piece_gone
from tests.tuning.test_choices import CHOICE

PUBLISHED = Path(__file__).parents[2] / "results" / "published.csv"
NUMBERS = 1000
LONG = b"x" * 3000


def cell_changed(chance, raw):
    values = [
        *(one for one in ODD if len(one) < 1000),
        LONG,
        b'"',
        b'"unended',
        b"0x10",
        "٣".encode(),
        b"1_000",
        b"-0",
        b"=1+1",
    ]
    found = list(re.finditer(rb"[^,\n]+", raw))
    one = chance.choice(found)
    return raw[: one.start()] + chance.choice(values) + raw[one.end() :]


def cells_added(chance, raw):
    return raw.replace(
        b"\n", chance.choice([b",\n", b",,,,x\n", b"\n\n", b'\n"', b"\r", b";\n", b"\x00\n"]), chance.randint(1, 9)
    )


def column_renamed(chance, raw):
    head, _, rest = raw.partition(b"\n")
    names = head.split(b",")
    names[chance.randrange(len(names))] = chance.choice([b"", b"x", names[0], b'"a\nb"'])
    return b",".join(names) + b"\n" + rest


DAMAGES = [bytes_flipped, cut, piece_gone, lines_doubled, lines_swapped, other_encoding, cell_changed, cell_changed,
           cell_changed, cells_added, column_renamed]  # fmt: skip


def damaged(number, raw):
    chance = random.Random(number)
    for damage in chance.sample(DAMAGES, chance.choice([1, 1, 2])):
        raw = damage(chance, raw) if b"\n" in raw[:-1] else raw
    return raw


def why_refused(path, read):
    """None where it is read; the one printable line in which it is refused, which begins with the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            read()
        except InputError as error:
            text = str(error)
            assert path.name in text.split(": ")[0], text
            assert text.isprintable(), ascii(text)
            assert len(text) < 400 + len(str(path))
            return text
    return None


def test_damaged_tables_of_published_figures_are_read_and_shown_or_refused(tmp_path):
    raw, path, told = b"".join(PUBLISHED.read_bytes().splitlines(keepends=True)[:12]), tmp_path / "published.csv", []
    nothing = load()
    for number in range(NUMBERS):
        path.write_bytes(damaged(number, raw))
        read = (lambda: render_page(nothing, published=path)) if number % 20 == 0 else (lambda: read_published(path))
        told.append(why_refused(path, read))
    assert NUMBERS / 5 < told.count(None) < NUMBERS * 4 / 5
    assert any(why and re.match(r"published\.csv:\d+: epoch_minutes: ", why) for why in told)


def test_damaged_tables_of_cards_are_read_or_refused(tmp_path):
    raw, path, told = KNOWN.read_bytes(), tmp_path / "cards.csv", []
    for number in range(NUMBERS):
        path.write_bytes(damaged(number, raw))
        told.append(why_refused(path, lambda: load_hardware(path)))
    assert NUMBERS / 5 < told.count(None) < NUMBERS * 4 / 5
    assert any(why and re.match(r"cards\.csv:\d+: memory_bytes", why) for why in told)


def test_damaged_choices_are_read_or_refused(tmp_path):
    raw, path, told = (
        json.dumps({"schema": 1, "choices": [CHOICE] * 3}, indent=1).encode(),
        tmp_path / "tuned.json",
        [],
    )
    for number in range(NUMBERS):
        path.write_bytes(damaged(number, raw))
        told.append(why_refused(path, lambda: read_choices(tmp_path)))
    assert 0 < told.count(None) < NUMBERS * 4 / 5


@pytest.mark.parametrize("read", [read_published, load_hardware])
def test_no_pipe_no_device_no_packed_and_no_large_file_is_read_as_a_table(tmp_path, read):
    pipe, packed, large = (tmp_path / name for name in ("pipe.csv", "packed.csv.gz", "large.csv"))
    os.mkfifo(pipe)
    packed.write_bytes(b"\x1f\x8b\x08\x00")
    large.write_bytes(b"x" * (4 * 2**20 + 1))
    cases = (
        (pipe, "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (packed, "unpack it"),
        (large, "larger"),
    )
    for path, words in cases:
        with pytest.raises(InputError, match=words):
            read(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x" * 2001 + ",w,,m,cpu,d,,1,1,1,1,2020", ":2: source: a text of 2,001 characters"),
        ("s,w,,m,cpu,d,,1,1,1,1,2020,more", ":2: more cells than the header has columns"),
        ('s,w,,m,cpu,"d"x,,1,1,1,1,2020', ":2: not a readable table"),
        ("s,w,,m,cpu,d,,1,-1,1,1,2020", ":2: epoch_minutes: '-1' is not a finite number"),
    ],
)
def test_a_bad_row_of_published_figures_is_refused_by_line_and_column(tmp_path, line, said):
    path = tmp_path / "published.csv"
    path.write_text(f"{PUBLISHED.read_text('utf-8').splitlines()[0]}\n{line}\n", "utf-8")
    with pytest.raises(InputError, match=re.escape(f"published.csv{said}")):
        read_published(path)


def test_a_published_pair_without_a_time_above_0_is_not_made_a_ratio(tmp_path):
    path = tmp_path / "published.csv"
    head = PUBLISHED.read_text("utf-8").splitlines()[0]
    path.write_text(f"{head}\ns,cnn,,m,cpu,d,,1,1,1,1,2020\ns,cnn,,m,cuda,d,,1,0,0,1,2020\n", "utf-8")
    assert "Published by others" in render_page(load(), published=path)
