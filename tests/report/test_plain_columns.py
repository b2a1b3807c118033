"""A table of many columns: a line a row, or where the terminal has no room columns below each other, or lines."""

import pytest

from epochbench.report.plain import in_columns

HEADS = ["workload", "card", "predicted step", "90% interval", "predicted job", "samples/s", "limited by", "loader"]
HEADS += ["memory"]
ROWS = [
    ["resnet50", "rtx3060laptop", "1.6 s", "1.2 s to 2.0 s", "04:16:43", "20.4", "loader", "70.6 ms", "448 MB"],
    *[["模型" * 8, "t4", "754.6 ms", "590.4 ms to 964.7 ms", "not known", "1.2e+07", "launches", "1.1 ms"]],
]
ROWS[1].append("23.4 GB, does not fit 16.0 GB")


def laid(width):
    return in_columns([HEADS, *ROWS], together=(2, 2, 2, 2, 1), width=width)


def columns(line):
    """Of a terminal; each of these characters takes two."""
    return len(line) + sum(character in "模型" for character in line)


def test_where_there_is_room_each_row_is_a_line_with_its_cells_under_their_headings():
    heads, *rows = laid(200)

    for row, cells in zip(rows, ROWS, strict=True):
        for head, cell in zip(HEADS, cells, strict=True):
            before = row[: row.index(cell)]
            assert columns(before) == heads.index(head)


@pytest.mark.parametrize("width", range(20, 200, 3))
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_torn_or_left_out(width):
    lines = laid(width)

    assert max(map(columns, lines)) <= width
    words = " ".join(lines).split()
    for cells in (HEADS, *ROWS):
        for word in " ".join(cells[2:]).split():
            assert word in words or f"{word}:" in words


def test_in_eighty_columns_two_of_a_row_stand_below_each_other():
    lines = laid(80)

    first = next(line for line in lines if line.startswith("resnet50"))
    second = lines[lines.index(first) + 1]
    assert first.split() == ["resnet50", "1.6", "s", "04:16:43", "loader", "448", "MB"]
    assert second.split() == ["rtx3060laptop", "1.2", "s", "to", "2.0", "s", "20.4", "70.6", "ms"]


def test_in_a_narrow_terminal_each_cell_is_told_with_its_heading():
    lines = [line.strip() for line in laid(60)]

    assert lines[:4] == ["resnet50", "rtx3060laptop", "predicted step: 1.6 s", "90% interval: 1.2 s to 2.0 s"]
    assert "memory: 23.4 GB, does not fit 16.0 GB" in lines
