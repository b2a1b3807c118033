"""The table of cards: names as people and drivers write them, and files that cannot be used."""

from pathlib import Path

import pytest

from epochbench.errors import InputError
from epochbench.prediction.hardware import KNOWN, card_of_device, find_card, load_hardware

HEADS, FIRST = KNOWN.read_text("utf-8").splitlines()[:2]


def test_the_wish_list_of_cards_is_known_with_a_source_each():
    cards = load_hardware()

    assert set(cards) == {
        *("t4", "p100", "v100", "gtx1080ti", "rtx2080ti", "titanv", "rtx3060laptop", "rtx3090", "rtx4090", "rtx5090"),
        *("a10", "l4", "a100-40gb", "a100-80gb", "h100", "h200"),
    }
    assert all(card.source for card in cards.values())


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("rtx3090", "rtx3090"),
        ("RTX 3090", "rtx3090"),
        ("3090", "rtx3090"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("Tesla T4", "t4"),
        ("a100-80gb", "a100-80gb"),
    ],
)
def test_a_card_is_found_by_what_people_call_it(name, card):
    assert find_card(name, load_hardware()).card == card


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("NVIDIA TITAN V", "titanv"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "rtx3060laptop"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA A1000", None),
        ("simulated", None),
        (None, None),
    ],
)
def test_the_device_of_a_run_is_the_card_it_names_or_none(name, card):
    found = card_of_device(name, load_hardware())

    assert (found.card if found else None) == card


def test_an_unknown_card_is_answered_with_the_nearest_and_how_to_give_its_figures():
    with pytest.raises(InputError, match=r"'rtx3099' is no known card; near it: rtx3090.*--hardware.*hardware.csv"):
        find_card("rtx3099", load_hardware())


def test_a_name_that_several_cards_begin_with_is_answered_with_these():
    with pytest.raises(InputError, match=r"'A100' is no known card; near it: a100-40gb, a100-80gb; "):
        find_card("A100", load_hardware())


@pytest.mark.parametrize(
    ("name", "card"),
    [("NVIDIA A100-SXM4-80GB", "a100-80gb"), ("A100-PCIE-40GB", "a100-40gb"), ("Tesla V100-SXM2-16GB", "v100")],
)
def test_a_card_is_found_by_the_name_that_torch_has_for_it(name, card):
    assert find_card(name, load_hardware()).card == card


def test_where_no_card_is_near_it_says_where_all_of_them_are_shown():
    with pytest.raises(InputError, match="'foo' is no known card; `epochbench predict` without --on shows all, and"):
        find_card("foo", load_hardware())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("8.1e12", "-8.1e12"), "cards.csv:2: fp32_flops_per_second is -8.1e12; it must be above 0"),
        (("8.1e12", ""), "cards.csv:2: fp32_flops_per_second is missing"),
        (("320e9", "fast"), "cards.csv:2: memory_bytes_per_second is 'fast', not a number"),
        (("320e9", "nan"), "cards.csv:2: memory_bytes_per_second is nan; it must be above 0"),
        (("16e9", "0"), "cards.csv:2: memory_bytes is 0; it must be above 0"),
        (("8.1e12", "8.1"), r"fp32_flops_per_second is 8\.1, and is of no card; it lies between 1e\+09 and 1e\+18"),
        (("t4,", '"t,4",'), "cards.csv:2: card is 't,4'; take out the comma or the =, which --on and --price read"),
        (("Tesla T4", "Tesla=T4"), "cards.csv:2: name is 'Tesla=T4'; take out the comma or the ="),
        (("320e9", "1e308"), "cards.csv:2: memory_bytes_per_second is 1e308, and is of no card"),
    ],
)
def test_a_bad_figure_is_refused_with_its_line_and_name(tmp_path, change, message):
    file = tmp_path / "cards.csv"
    file.write_text(f"{HEADS}\n{FIRST.replace(*change)}\n", "utf-8")

    with pytest.raises(InputError, match=message):
        load_hardware(file)


@pytest.mark.parametrize("text", ["", "card,name\n", "\x00\n", "name;fp32\nx;1\n"])
def test_what_is_no_table_of_cards_is_refused_in_one_line(tmp_path, text):
    file = tmp_path / "cards.csv"
    file.write_text(text, "utf-8")

    with pytest.raises(InputError, match=r"^cards\.csv.*") as refused:
        load_hardware(file)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused_by_name():
    with pytest.raises(InputError, match=r"none\.csv"):
        load_hardware(Path("none.csv"))


def test_a_file_adds_a_card_to_those_known(tmp_path):
    file = tmp_path / "cards.csv"
    file.write_text(f"{HEADS}\n{FIRST.replace('t4,Tesla T4', 'mine,My card')}\n", "utf-8")

    cards = load_hardware(file)

    assert find_card("My card", cards).card == "mine"
    assert "rtx3090" in cards


def test_bf16_is_refused_on_a_card_without_it_and_tf32_runs_as_fp32():
    card = find_card("t4", load_hardware())

    with pytest.raises(InputError, match="t4: has no bf16"):
        card.rates("bf16")
    assert card.rates("tf32") == card.rates("fp32")
