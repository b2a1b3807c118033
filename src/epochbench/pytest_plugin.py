"""The door for pytest: the options, the fixture `race`, and what a session leaves behind.

    def test_unet(race):
        race(Workload(name="unet", …))

The test is parametrized over `race_device`. The first of its cases runs the whole race, interleaved over all the
devices that were selected; each case then replays its own device's epochs through pytest-benchmark.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochbench.errors import InputError
from epochbench.names import names_in
from epochbench.pytest_output import be_lenient, be_strict_again

if TYPE_CHECKING:
    from epochbench.pytest_session import RaceSession

_DEVICE = re.compile(r"[a-z][a-z_]*(:\d+)?")
_LARGEST_COUNT = 1_000_000_000
_KEY = pytest.StashKey["RaceSession"]()
LEFT_OUT = "left out by epochbench"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("race", "epochbench: training on the CPU against the accelerator")
    add = group.addoption
    add(
        "--race-devices",
        metavar="NAMES",
        type=_devices,
        help="devices to race, the baseline first, such as cpu,cuda or cpu,cuda:1 (default: cpu and the accelerator)",
    )
    add(
        "--race-replicates",
        metavar="N",
        type=_count,
        help="measurements a device (default: 4; 3 for one device alone)",
    )
    add(
        "--race-epochs",
        metavar="N",
        type=_count,
        help="timed epochs a measurement (default: enough for its quick steps, or the job's with --race-full)",
    )
    add(
        "--race-steps",
        metavar="N",
        type=_count,
        help="training steps to which an epoch is cut (default: the workload's)",
    )
    add("--race-full", action="store_true", help="whole epochs, and as many as the real job has")
    add("--race-recipes", metavar="NAMES", default="article", help="how to train (default: article)")
    add("--race-batch-size", metavar="N", type=_count, help="samples a step, instead of the workload's own")
    add(
        "--race-data",
        metavar="DIR",
        type=Path,
        help="folder with MNIST or Cats vs Dogs (default: embedded data)",
    )
    add(
        "--race-download",
        action="store_true",
        help="fetch MNIST and pretrained weights where they are missing",
    )
    add("--race-sweeps", action="store_true", help="the sweeps over batch sizes, widths and loaders too")
    add("--race-label", metavar="NAME", type=_label, help="a name for this machine in tables and file names")
    add("--race-results", metavar="DIR", type=Path, help="folder for runs/ and report.html (default: results)")
    add(
        "--race-resume",
        metavar="FILE",
        type=Path,
        help="go on with a run that was cut: measure only what its file lacks, into a new file",
    )
    add("--race-require-gpu", action="store_true", help="stop with an error where no accelerator works")
    add("--race-timeout", metavar="SECONDS", type=_seconds, help="end a measurement that takes longer")
    add(
        "--race-isolation",
        choices=("process", "none"),
        default="process",
        help="a fresh process for each measurement, or this one, for debugging (default: process)",
    )
    add("--race-seed", metavar="N", type=_seed, default=0, help="seed of weights and batch order (default: 0)")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from epochbench import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Refuse pytest-xdist before pytest-benchmark speaks of an option that nobody gave."""
    parallel = config.getoption("dist", "no") != "no" and not config.getoption("benchmark_disable", False)
    if parallel and config.getoption("benchmark_only", False):
        why = "timings of tests that run at the same time disturb each other"
        raise pytest.UsageError(f"-n: {why}; leave -n out with --benchmark-only")


@pytest.hookimpl(trylast=True)  # once there is a terminal
def pytest_configure(config: pytest.Config) -> None:
    be_lenient(config)
    mark = "race_recipes(*names): the recipes that this race is run under, whatever --race-recipes says"
    config.addinivalue_line("markers", mark)
    _check_recipes(_recipes(config), "--race-recipes")
    if config.getoption("race_full") and config.getoption("race_steps"):
        raise pytest.UsageError("--race-steps cuts the epochs that --race-full wants whole; give one of them")
    data = config.getoption("race_data")
    if data is not None and not data.is_dir():
        what = "is not a folder" if data.exists() else "does not exist"
        raise pytest.UsageError(f"--race-data: {data} {what}; give the folder that holds MNIST/raw or PetImages")


@pytest.fixture
def race(request: pytest.FixtureRequest, benchmark: Any, race_device: str) -> Any:
    """Races a Workload: `race(workload)` → this device's Lane, with its measurement and epoch records.

    Fails the test where the measurement failed, skips it where the device cannot be used. One race a test.
    """
    return _session(request.config).racer(request, benchmark, race_device)


@pytest.fixture
def race_data(request: pytest.FixtureRequest) -> Any:
    """Where the data are: the DataOptions of `--race-data` and `--race-download`."""
    from epochbench.datasets import DataOptions

    return DataOptions(
        folder=request.config.getoption("race_data"), download=request.config.getoption("race_download")
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"race", "race_device"} <= set(metafunc.fixturenames):
        mark = metafunc.definition.get_closest_marker("race_recipes")
        recipes = _recipes(metafunc.config) if mark is None else list(mark.args)
        _check_recipes(recipes, f"{metafunc.definition.nodeid}, mark race_recipes")
        metafunc.parametrize("race_device", list(_contenders(metafunc.config, recipes)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from epochbench.replay import ReplayTimer

    for item in items:
        if _is_race(item):
            closest = item.get_closest_marker("benchmark")
            options = dict(closest.kwargs) if closest else {}
            item.add_marker(pytest.mark.benchmark(**options | {"timer": ReplayTimer()}), append=False)
            # A race that failed has nothing to replay.
            item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all"))


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    races = [item for item in session.items if _is_race(item)]
    if not races or config.getoption("collectonly") or config.getoption("benchmark_skip"):
        be_strict_again(config)
        return
    if hasattr(config, "workerinput") and not _session(config).disabled:
        return  # of pytest-xdist: the fixture refuses
    _session(config).begin(races)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Any:
    races = session.config.stash.get(_KEY, None)
    if races is not None:
        races.finish(int(exitstatus), failed_enough=bool(session.shouldfail))
        if races.trouble is not None and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if races.termination.came:
            from epochbench.measure.termination import EXIT_CODE

            session.exitstatus = EXIT_CODE
    _drop_benchmarks_without_rounds(session.config)
    try:
        return (yield)
    except Exception:
        # As pytest-benchmark's for a grouping that it cannot make: the terminal's summary is then not reached.
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if races is not None and reporter is not None:
            races.summarize(reporter)
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Any:
    try:
        return (yield)
    finally:
        # Also where another summary raises, as pytest-benchmark's does under --benchmark-compare-fail.
        races = config.stash.get(_KEY, None)
        if races is not None:
            races.summarize(terminalreporter)


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Take out the host name, which names the owner, and the clock as it ticked just now, which always differs."""
    from epochbench.measure.machine import nameless

    machine_info.pop("node", None)
    machine_info |= {name: nameless(value) for name, value in machine_info.items() if isinstance(value, str)}
    for key in [key for key in machine_info.get("cpu", {}) if key.startswith("hz_actual")]:
        del machine_info["cpu"][key]


def pytest_benchmark_update_commit_info(config: pytest.Config, commit_info: dict[str, Any]) -> None:
    """Beside a race leave out what people name after themselves; which commit it was stays."""
    if config.stash.get(_KEY, None) is not None:
        commit_info |= {name: LEFT_OUT for name in ("branch", "project", "error") if name in commit_info}


def _drop_benchmarks_without_rounds(config: pytest.Config) -> None:
    """A benchmark that was ended in its first round would lose the results of the whole session."""
    session = getattr(config, "_benchmarksession", None)
    if session is not None:
        session.benchmarks[:] = [one for one in session.benchmarks if one.stats.data]


def _session(config: pytest.Config) -> RaceSession:
    if _KEY not in config.stash:
        from epochbench.pytest_session import RaceSession
        from epochbench.recipe import RECIPES

        config.stash[_KEY] = RaceSession(config, _contenders(config, list(RECIPES)))
    return config.stash[_KEY]


def _is_race(item: pytest.Item) -> bool:
    """Whether the test is one of ours: another project may have a fixture named `race` too."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "race" in item.fixturenames and "race_device" in callspec.params


def _contenders(config: pytest.Config, recipes: list[str]) -> dict[str, tuple[str, str]]:
    """Case id → (device, recipe), the baseline first."""
    from epochbench.recipe import contender_id

    devices = config.getoption("race_devices") or _default_devices()
    return {contender_id(device, recipe): (device, recipe) for recipe in recipes for device in devices}


def _check_recipes(names: list[str], where: str) -> None:
    from epochbench.recipe import RECIPES

    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise pytest.UsageError(f"{where}: no recipe is named {unknown[0]!r}; there is {', '.join(RECIPES)}")


def _default_devices() -> list[str]:
    """cpu and the kind of accelerator that this torch is built for; cuda, to be skipped, where it is for none."""
    import torch

    accelerator = torch.accelerator.current_accelerator()
    return ["cpu", accelerator.type if accelerator is not None else "cuda"]


def _recipes(config: pytest.Config) -> list[str]:
    try:
        return names_in(config.getoption("race_recipes"), "--race-recipes")
    except InputError as error:
        raise pytest.UsageError(str(error)) from error


def _devices(text: str) -> list[str]:
    try:
        names = names_in(text)
    except InputError as error:
        raise _wrong(str(error)) from error
    for name in names:
        if not _DEVICE.fullmatch(name):
            raise _wrong(f"{name!r} is not a device; use cpu, cuda, cuda:1, mps or xpu")
    numbered = [name for name in names if name.startswith("cpu:")]
    if numbered:
        raise _wrong(f"{numbered[0]!r} is not a device of its own; use cpu")
    if len({name.removesuffix(":0") for name in names}) < len(names):
        raise _wrong(f"{text!r} names a device twice")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST_COUNT:
        raise _wrong(f"{text!r} is not a whole number from 1 to {_LARGEST_COUNT:,}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise _wrong(f"{text!r} is not a whole number from 0 to 4,294,967,295")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise _wrong(f"{text!r} is not a number of seconds above 0")
    return seconds


def _label(text: str) -> str:
    if not text.strip() or len(text) > 60 or not text.isprintable():
        raise _wrong(f"{text!r} is not a name of 1 to 60 printable characters")
    return text.strip()


def _wrong(message: str) -> Exception:
    import argparse

    return argparse.ArgumentTypeError(message)
