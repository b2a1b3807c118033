"""What a run leaves behind names neither its user nor its machine nor its places, and nothing is sent anywhere.

The user, the home folder and the host have odd names here, in all the processes, and what is looked for is looked
for in every file and every output of all the commands.
"""

import base64
import json
import os
import re
import socket
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from epochbench.measure import machine
from tests.datasets.test_datasets_mnist import write_mnist
from tests.sessions import ROOT, SUITE, short_folder

USER, HOST, AUTHOR = "jdoe-odd", "odd-host-77.lab.example", "Quirin Oddname"
FAKE = """
import os, platform, socket, sys

HOST, LOG = os.environ["ODD_HOST"], os.environ["ODD_LOG"]
real = os.uname()
os.uname = lambda: os.uname_result((real.sysname, HOST, real.release, real.version, real.machine))
socket.gethostname = lambda: HOST
platform.node = lambda: HOST
ASKS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo", "urllib.Request")

def watch(event, arguments):
    if event == "socket.__new__" and arguments[1] != socket.AF_UNIX or event in ASKS:
        with open(LOG, "a") as log:
            log.write(f"{event} {arguments[1:]}\\n")

sys.addaudithook(watch)
"""
BENCH = """
from pathlib import Path
from models import cnn

HOME = Path.home()

def gone():
    raise FileNotFoundError(2, "No such file or directory", str(HOME / "secret folder" / "x.png"))

def refused():
    raise RuntimeError(
        f"{HOME}/secret/y.png of USER on HOST and SHORT, "
        f"file://{HOME}/secret/z.png, /home/USER2/t.png "
        "at 10.20.30.40:29500, fe80::1ff:fe23:4567:890a, 2001:db8:1:2:3:4:5:6, 00:1b:44:11:3a:b7, "
        "GPU-6f1cbb2e-8a5f-4c3a-9d0e-0123456789ab, \\udcff"
    )

def test_cnn(race, race_data):
    race(cnn.workload(race_data))

def test_gone(race):
    race(workload(name="gone", train_data=gone))

def test_refused(race):
    race(workload(name="refused", train_data=refused))
"""
PLACES = [f"/sys/class/dmi/id/{name}" for name in ("product_uuid", "product_serial", "board_serial")]
PLACES += ["/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id"]

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="the names of user and host are faked as Linux has them"),
]


@dataclass(frozen=True, kw_only=True)
class Left:
    """`texts`: name → all that a file or an output holds; `log`: what was asked of the network."""

    texts: dict[str, str]
    log: str
    home: Path
    environment: dict[str, str]


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    home = tmp_path_factory.mktemp("x") / USER
    project = home / f"thesis of {USER}"
    project.mkdir(parents=True)
    fake = home / "fake"
    fake.mkdir()
    (fake / "sitecustomize.py").write_text(FAKE)
    suite = BENCH.replace("SHORT", HOST.partition(".")[0]).replace("HOST", HOST).replace("USER", USER)
    (project / "bench_odd.py").write_text(SUITE + suite)
    (project / "jobs_of_mine.py").write_text(SUITE.partition("def test_blobs")[0])
    write_mnist(home / "my data" / "MNIST" / "raw", train=64, test=32)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_", "SSH_"))}
    environment |= {
        "HOME": str(home),
        "ODD_HOST": HOST,
        "ODD_LOG": str(home / "log"),
        "TMPDIR": str(short_folder()),
    }
    environment |= dict.fromkeys(("USER", "LOGNAME", "LNAME", "USERNAME"), USER)
    environment |= {"PYTHONPATH": os.pathsep.join([str(fake), str(ROOT)]), "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    _repository(project, environment)
    texts = {}

    def run(name, *command):
        done = subprocess.run(
            [sys.executable, "-m", *map(str, command)], cwd=project, env=environment, capture_output=True, text=True,
            errors="replace", timeout=240, check=False,
        )  # fmt: skip
        texts[name] = done.stdout + (done.stderr if command[0] == "epochbench" else "")
        return done

    race = ["pytest", "-p", "no:cacheprovider", "bench_odd.py", "--benchmark-only", "--race-devices=cpu"]
    race += ["--race-replicates=1", "--race-steps=2", f"--race-data={home / 'my data'}"]
    first = run("first run", *race, "--benchmark-json=out.json", "--benchmark-save=kept")
    assert first.returncode == 1, first.stdout + first.stderr
    second = run("second run", *race, "-k", "blobs or cnn", "--race-label=other", "--benchmark-autosave")
    assert second.returncode == 0, second.stdout + second.stderr
    for name in ("first run", "second run"):
        texts[name] = texts[name].partition(" epochbench =")[2].partition("\n=")[0]
        assert texts[name]
    runs = sorted((project / "results/runs").glob("*.jsonl"))
    commands = {
        "table": ["table"], "csv": ["table", "-f", "csv"], "json": ["table", "-f", "json"],
        "markdown": ["table", "-f", "markdown"], "report": ["report"],
        "compare": ["compare", *(path.relative_to(project) for path in runs), "-o", "compare.html"],
        "export": ["export", "-o", "tables"], "parquet": ["export", "-o", "parquet", "-f", "parquet"],
        "doctor": ["doctor", "--data", home / "my data"],
        "doctor json": ["doctor", "--json", "--data", home / "my data"],
    }  # fmt: skip
    for name, command in commands.items():
        done = run(name, "epochbench", *command)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    for budget in (12, 48, 192):  # what is too little on a busy machine is refused
        done = run("tune", "epochbench", "tune", "jobs_of_mine.py:workload", "--device", "cpu", "--budget", budget)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    log = (home / "log").read_text() if (home / "log").exists() else ""
    return Left(texts=texts | _files(project), log=log, home=home, environment=environment)


def _repository(project, environment):
    email = f"{USER}@{HOST}"
    who = ["-c", f"user.name={AUTHOR}", "-c", f"user.email={email}"]
    for command in (["init", "-q", "-b", f"{USER}/by-{AUTHOR.replace(' ', '-')}"], ["add", "bench_odd.py"],
                    [*who, "commit", "-q", "-m", f"by {AUTHOR}"]):  # fmt: skip
        subprocess.run(["git", *command], cwd=project, env=environment, check=True, timeout=60)


def _files(project):
    """Relative path → the text of each file that the commands made, with what is packed or encoded in it."""
    from pyarrow import parquet

    found = {}
    ours = ("bench_odd.py", "jobs_of_mine.py")
    for path in sorted(path for path in project.rglob("*") if path.is_file()):
        name = str(path.relative_to(project))
        if name in ours or name.startswith(".git/") or "__pycache__" in name:
            continue
        raw = path.read_bytes()
        text = raw.decode("utf-8", "replace")
        text += "".join(
            base64.b64decode(part).decode("utf-8") for part in re.findall(r"text/csv[^,]*,([\w+/=]+)", text)
        )
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
            text += f"{table.to_pydict()} {table.schema.metadata}"
        found[name] = f"{name}\n{text}"
    return found


def _own_names():
    """What the real machine is called: its addresses, its ids and serials, as far as they can be read."""
    names = {socket.gethostname()}
    for addresses in psutil.net_if_addrs().values():
        names |= {one.address.partition("%")[0] for one in addresses if one.address}
    for place in PLACES:
        try:
            names.add(Path(place).read_text().strip())
        except OSError:
            continue
    names |= {f"{uuid.getnode():012x}", ":".join(re.findall("..", f"{uuid.getnode():012x}"))}
    harmless = ("127.", "::1", "00:00:00:00:00:00", "0.0.0.0", "localhost", "None", "Default")
    return {name for name in names if len(name) > 5 and not name.startswith(harmless)}


def test_no_file_and_no_output_names_the_user_the_host_the_home_or_the_author(left):
    names = [USER, HOST, HOST.partition(".")[0], str(left.home), str(left.home.parent), AUTHOR, *AUTHOR.split()]
    names += ["secret folder", "secret/"]
    for place, text in left.texts.items():
        for name in names:
            assert name.lower() not in text.lower(), (place, _around(text, name))


def test_no_file_and_no_output_holds_an_address_a_serial_or_a_uuid(left):
    pattern = re.compile(
        r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|fe80:|2001:db8|10\.20\.30\.40",
        re.IGNORECASE,
    )
    for place, text in left.texts.items():
        found = pattern.search(text)
        assert found is None, (place, _around(text, found[0]))
        for name in _own_names():
            assert name.lower() not in text.lower(), (place, _around(text, name))


def _around(text, name):
    at = text.lower().index(name.lower())
    return text[max(0, at - 100) : at + 100]


def test_all_that_is_written_and_shown_was_looked_at(left):
    """Else the tests above would find nothing in nothing."""
    kinds = {name.rpartition(".")[2] for name in left.texts if "/" in name or "." in name}
    assert kinds >= {"jsonl", "json", "html", "csv", "parquet"}
    for name in ("results/tuned.json", "results/report.html", "compare.html", "out.json", "tables/measurements.csv"):
        assert len(left.texts[name]) > 200
    assert any(name.startswith(".benchmarks/") for name in left.texts)
    assert {"first run", "table", "doctor", "doctor json", "tune"} <= left.texts.keys()
    assert all(text.strip() for name, text in left.texts.items() if name != "export")
    assert "MNIST" in left.texts["csv"]


def test_the_reason_of_a_failure_says_what_was_wrong_with_stand_ins_for_the_names(left):
    (path,) = [name for name in left.texts if name.startswith("results/runs/") and "other" not in name]
    records = [json.loads(line) for line in left.texts[path].splitlines()[1:]]
    reasons = {one["workload"]: one["reason"] for one in records if one["kind"] == "measurement" and one["reason"]}
    assert "No such file or directory: 'x.png'" in reasons["gone"]
    for said in ("y.png of <user> on <host> and <host>", "z.png", "t.png", "<address>", "GPU-<uuid>"):
        assert said in reasons["refused"], reasons["refused"]


def test_pytest_benchmark_keeps_the_commit_and_not_what_people_name_after_themselves(left):
    written = json.loads(left.texts["out.json"].partition("\n")[2])
    assert "node" not in written["machine_info"]
    assert re.fullmatch(r"[0-9a-f]{40}", written["commit_info"]["id"])
    assert USER not in json.dumps(written["commit_info"])
    assert written["machine_info"]["system"] == "Linux"


def test_nothing_asks_the_network_for_anything(left):
    assert left.log == ""
    code = "import socket; socket.socket().close(); socket.socketpair()[0].close()"
    environment = left.environment | {"ODD_LOG": str(left.home / "control")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    assert (left.home / "control").read_text().count("socket.__new__") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no '/home/ada b/my data/x y.png' here", "no 'x y.png' here"),
        ("[Errno 2] No such file: '/srv/team of ada/x.png'", "[Errno 2] No such file: 'x.png'"),
        ("in /home/grace", "in ~"),
        ("in /Users/grace, or C:\\Users\\grace\\x", "in ~, or x"),
        ("file:///home/grace/x.png", "x.png"),
        (r"\\server\share\x.csv", "x.csv"),
        ("ADA and Engine.local and engine", "<user> and <host> and <host>"),
        (
            "cuDNN 9.1.0, torch 2.14.1+cu130, 3.11.7, 12:30:45, 1.5.2",
            "cuDNN 9.1.0, torch 2.14.1+cu130, 3.11.7, 12:30:45, 1.5.2",
        ),
        ("at 192.168.1.7:80.", "at <address>:80."),
        ("127.0.0.1:80 and 0.0.0.0", "127.0.0.1:80 and 0.0.0.0"),
        ("at::Tensor, c10::Error, std::bad_alloc", "at::Tensor, c10::Error, std::bad_alloc"),
        ("aa:bb:cc:dd:ee:ff and fe80::1ff:fe23:4567:890a and 2001:db8::1", "<address> and <address> and <address>"),
        ("half \udcff of it", "half ? of it"),
    ],
)
def test_names_places_and_addresses_are_taken_out_of_a_text(monkeypatch, text, said):
    monkeypatch.setattr(machine.platform, "node", lambda: "engine.local")
    monkeypatch.setattr(machine.getpass, "getuser", lambda: "ada")
    assert machine.without_names(text) == said
