"""Energy from counters laid out by hand: RAPL's files below a folder, and a driver that answers what it is told."""

from types import SimpleNamespace

import pytest
import torch

from epochbench import precisions
from epochbench.measure import energy
from epochbench.measure.energy import EnergyMeter, NvmlCounter, open_counter
from tests.measure.test_protocol import make, measure

RANGE = 262_143_328_850
"""The range that an Intel Xeon reports, in µJ: 262 kJ."""


@pytest.fixture(autouse=True)
def _leave_torch_as_it_was():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    precisions.pin_precision("fp32")


class FakeNvmlError(Exception):
    pass


def lay_out(root, **zones):
    """Zone folders with their files; a zone is (name, energy in µJ)."""
    for folder, (name, microjoules) in zones.items():
        zone = root / "sys/class/powercap" / folder.replace("_", ":")
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "energy_uj").write_text(f"{microjoules}\n")
        (zone / "max_energy_range_uj").write_text(f"{RANGE}\n")


def zone(number):
    return f"intel-rapl_{number}"


def rapl(root, readings, times, **others):
    """The facts of a meter of package 0 that reads one value after the other, at these times."""
    lay_out(root, **{zone(0): ("package-0", readings[0])}, **others)
    clock = iter(times)
    meter = EnergyMeter(open_counter("cpu", root), lambda: next(clock))
    for reading in readings:
        lay_out(root, **{zone(0): ("package-0", reading)})
        meter.sample()
    return meter.facts()


def nvml(readings, times=(0.0, 10.0)):
    """The facts of a meter whose driver answers each reading, or raises where it is an error."""

    def total(handle):
        reading = next(answers)
        if isinstance(reading, Exception):
            raise reading
        return reading

    answers, clock = iter(readings), iter(times)
    library = SimpleNamespace(
        NVMLError=FakeNvmlError, nvmlDeviceGetTotalEnergyConsumption=total, nvmlShutdown=lambda: None
    )
    meter = EnergyMeter(NvmlCounter(library, "handle"), lambda: next(clock))
    for _ in readings:
        meter.sample()
    return meter.facts()


def test_rapl_is_the_difference_in_joules_from_the_first_reading_to_the_last(tmp_path):
    assert rapl(tmp_path, [5_000_000, 25_000_000, 65_000_000], [100.0, 101.0, 103.0]) == {
        "energy_joules": pytest.approx(60.0),
        "energy_source": "rapl",
    }


def test_a_package_that_begins_again_at_0_is_counted_on(tmp_path):
    found = rapl(tmp_path, [RANGE - 30_000_000, 12_000_000], [0.0, 2.0])
    assert found["energy_joules"] == pytest.approx(42.0)


def test_packages_are_summed_without_their_parts_the_platform_and_the_second_door_to_the_same_package(tmp_path):
    others = {
        zone(1): ("package-1", 7_000_000),
        "intel-rapl_0_0": ("core", 1_000_000),
        "intel-rapl_2": ("psys", 1_000_000),
        "intel-rapl-mmio_0": ("package-0", 1_000_000),
    }
    lay_out(tmp_path, **{zone(0): ("package-0", 0)}, **others)
    clock = iter([0.0, 2.0])
    meter = EnergyMeter(open_counter("cpu", tmp_path), lambda: next(clock))
    meter.sample()
    grown = {folder: (name, microjoules + 50_000_000) for folder, (name, microjoules) in others.items()}
    lay_out(tmp_path, **{zone(0): ("package-0", 20_000_000)}, **grown)
    meter.sample()
    assert meter.facts()["energy_joules"] == pytest.approx(20.0 + 50.0)


def test_a_counter_that_may_not_be_read_is_none(tmp_path, monkeypatch):
    lay_out(tmp_path, **{zone(0): ("package-0", 1), zone(1): ("package-1", 1)})
    read = energy.Path.read_text

    def refuse(path, *args, **options):
        if path.name == "energy_uj" and "rapl:1" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *args, **options)

    monkeypatch.setattr(energy.Path, "read_text", refuse)
    assert open_counter("cpu", tmp_path) is None


@pytest.mark.parametrize("name", ["energy_uj", "max_energy_range_uj"])
def test_a_counter_without_a_number_or_without_a_range_is_none(tmp_path, name):
    lay_out(tmp_path, **{zone(0): ("package-0", 1)})
    (tmp_path / "sys/class/powercap/intel-rapl:0" / name).write_text("0\n" if name.startswith("max") else "none\n")
    assert open_counter("cpu", tmp_path) is None


def test_a_machine_without_rapl_measures_no_energy(tmp_path):
    meter = EnergyMeter(open_counter("cpu", tmp_path))
    meter.sample()
    assert meter.facts() == {}


def test_a_counter_that_becomes_unreadable_on_the_way_spoils_the_whole_figure(tmp_path):
    assert rapl(tmp_path, [5_000_000, "gone", 65_000_000, 85_000_000], [0.0, 2.0, 4.0, 6.0]) == {}


def test_a_stretch_in_which_a_package_may_have_gone_round_unseen_is_not_measured(tmp_path):
    """262 kJ last 262 s at 1,000 W."""
    assert rapl(tmp_path, [0, 100_000_000], [0.0, 263.0]) == {}
    assert rapl(tmp_path, [0, 100_000_000, 200_000_000], [0.0, 200.0, 400.0])["energy_joules"] == pytest.approx(200)


def test_a_counter_that_was_set_back_is_not_taken_for_one_that_went_round(tmp_path):
    """From 100 J to 40 J the long way round are 262 kJ, in 2 s."""
    assert rapl(tmp_path, [100_000_000, 40_000_000], [0.0, 2.0]) == {}


def test_nvml_is_the_difference_of_its_millijoules():
    assert nvml([1_000_000, 1_750_000]) == {"energy_joules": pytest.approx(750.0), "energy_source": "nvml"}


@pytest.mark.parametrize(
    "readings",
    [[FakeNvmlError(), FakeNvmlError()], [1_000, FakeNvmlError()], [2_000_000, 1_000_000], [5_000, 5_000]],
    ids=["not supported", "lost on the way", "went back", "stood still"],
)
def test_a_gpu_whose_counter_tells_nothing_has_no_energy(readings):
    assert nvml(readings) == {}


def test_what_is_left_out_counts_neither_as_energy_nor_as_time(tmp_path):
    """0, 10, 13, 33 J at 0, 1, 2, 4 s, the stretch from 10 to 13 J left out; then 0, 1, 61 J in 1.2 s."""
    lay_out(tmp_path, **{zone(0): ("package-0", 0)})

    def facts(*steps):
        clock = iter([seconds for _, seconds, _ in steps])
        meter = EnergyMeter(open_counter("cpu", tmp_path), lambda: next(clock))
        for joules, _, kind in steps:
            lay_out(tmp_path, **{zone(0): ("package-0", int(joules * 1e6))})
            getattr(meter, kind)()
        return meter.facts()

    assert facts((0, 0.0, "sample"), (10, 1.0, "sample"), (13, 2.0, "leave_out"), (33, 4.0, "sample")) == {
        "energy_joules": pytest.approx(10 + 20),
        "energy_source": "rapl",
    }
    assert facts((0, 0.0, "sample"), (1, 0.9, "leave_out"), (61, 1.2, "sample")) == {}


def test_less_than_a_second_is_not_measured():
    assert nvml([0, 300_000], [10.0, 10.9]) == {}
    assert nvml([0, 300_000], [10.0, 11.1])["energy_joules"] == pytest.approx(300)


def test_only_an_nvidia_gpu_is_asked_for_nvml(monkeypatch):
    assert open_counter("mps") is None
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert open_counter("cuda") is None


def test_a_measurement_counts_from_the_end_of_the_warm_up_to_the_end_of_the_last_evaluation(monkeypatch):
    """Two timed epochs: three readings, the first after the warm-up, none between an epoch and its evaluation.

    While a record is written the device waits, and that is left out.
    """
    seen = []

    class Meter:
        def __init__(self, counter):
            pass

        def sample(self):
            seen.append("sample")

        def leave_out(self):
            seen.append("left out")

        def facts(self):
            return {"energy_joules": 12.0, "energy_source": "rapl"}

    monkeypatch.setattr("epochbench.measure.protocol.EnergyMeter", Meter)
    epochs, measurement = measure(make(), after=lambda message: seen.append(message.get("epoch")))
    assert seen == ["sample", 0, "left out", "sample", 1, "left out", "sample", 2, "left out", None]
    assert (measurement["energy_joules"], measurement["energy_source"]) == (12.0, "rapl")
    assert all(epoch["evaluation_steps"] for epoch in epochs[1:])
