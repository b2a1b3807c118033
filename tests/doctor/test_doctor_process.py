"""The other process: whatever it does, the doctor goes on and says at which stage it ended."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from epochbench.doctor import child, process

HEAD = """
import json, os, signal, sys, time
found = json.loads(sys.stdin.readline())["found"]
def tell(stage, facts=None):
    print(json.dumps([stage, facts]), flush=True)
def does(stage, what=lambda: {}):
    if stage not in found:
        tell(stage)
        tell(stage, what())
does("torch")
"""
END = "\ntell(None)\n"


def look(program, seconds=20.0, **options):
    return process.look(program=HEAD + program + END, stage_seconds=seconds, **options)


def test_each_stage_is_told_as_it_begins_and_kept_with_its_facts():
    stages = []
    assert look("does('cuda', lambda: {'available': True})", on_stage=stages.append) == {
        "torch": {},
        "cuda": {"available": True},
    }
    assert stages == ["torch", "cuda"]


def test_a_device_that_crashes_is_blamed_and_the_next_one_is_still_tried():
    program = """
def crash():
    sys.stderr.write("/opt/ann/driver.cpp: a fault\\n"); sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)
does("cuda", crash)
does("cuda:1", lambda: {"available": True})
"""
    found = look(program)
    assert found["cuda"] == {"error": "the process that tried it was ended by SIGSEGV (driver.cpp: a fault)"}
    assert found["cuda:1"] == {"available": True}


def test_a_device_that_hangs_is_given_up_and_its_process_is_gone():
    program = """
def hang():
    tell("pid", {"pid": os.getpid()})
    tell("cuda")
    time.sleep(600)
does("cuda", hang)
does("cuda:1", lambda: {"available": True})
"""
    found = look(program, seconds=4.0)
    assert found["cuda"] == {"error": "no answer within 4 s"}
    assert found["cuda:1"] == {"available": True}
    with pytest.raises(ProcessLookupError):
        os.kill(found["pid"]["pid"], 0)


def test_a_process_that_ends_without_a_word_is_no_endless_loop():
    found = process.look(program="import sys; sys.exit(3)", stage_seconds=20.0)
    assert found == {"torch": {"error": "the process that tried it ended with exit code 3"}}


def test_a_message_that_was_cut_is_left_out():
    program = """
def cut():
    sys.stdout.write('["cuda", {"avail'); sys.stdout.flush(); os._exit(7)
does("cuda", cut)
"""
    assert look(program)["cuda"] == {"error": "the process that tried it ended with exit code 7"}


def test_a_process_that_closes_its_door_and_stays_is_given_up(monkeypatch):
    monkeypatch.setattr(process, "LEAVING_SECONDS", 0.5)
    program = "def stay():\n    os.close(1)\n    time.sleep(600)\ndoes('cuda', stay)"
    assert look(program)["cuda"] == {"error": "no answer within 20 s"}


def test_nothing_is_looked_at_after_a_torch_that_failed(monkeypatch):
    def broken():
        raise ImportError("libtorch.so")

    monkeypatch.setattr(child, "look_at_torch", broken)
    assert list(child.go_through({})) == [("torch", None), ("torch", {"error": "ImportError: libtorch.so"})]


def test_nothing_is_looked_at_after_a_torch_that_crashed():
    begun = []
    program = "import os, sys; os.write(1, b'[\"torch\", null]\\n'); os.abort()"
    found = process.look(program=program, stage_seconds=20.0, on_stage=begun.append)
    assert found == {"torch": {"error": "the process that tried it was ended by SIGABRT"}}
    assert begun == ["torch"]


def fake_torch(folder, monkeypatch, text):
    (folder / "torch.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def test_a_torch_that_cannot_be_imported_is_told_without_the_folders_of_its_owner(tmp_path, monkeypatch):
    fake_torch(tmp_path, monkeypatch, "raise ImportError('/home/ada/lib/libcudart.so.13: cannot open')")
    assert process.look() == {"torch": {"error": "ImportError: libcudart.so.13: cannot open"}}


def test_a_torch_whose_import_aborts_is_told_with_its_last_words(tmp_path, monkeypatch):
    fake_torch(tmp_path, monkeypatch, "import os; os.write(2, b'illegal instruction\\n'); os.abort()")
    assert process.look() == {
        "torch": {"error": "the process that tried it was ended by SIGABRT (illegal instruction)"}
    }


def test_a_torch_whose_import_hangs_is_given_up(tmp_path, monkeypatch):
    fake_torch(tmp_path, monkeypatch, "import time; time.sleep(600)")
    assert process.look(stage_seconds=5.0) == {"torch": {"error": "no answer within 5 s"}}


def test_what_torch_prints_is_no_message(tmp_path, monkeypatch):
    fake_torch(tmp_path, monkeypatch, "print('hello'); import sys; sys.stdout.flush(); raise ImportError('x')")
    assert process.look() == {"torch": {"error": "ImportError: x"}}


CHILD_THAT_HANGS = (
    "import sys, threading, time; sys.stdin.readline(); from epochbench.doctor import child; "
    "threading.Thread(target=child._leave_with_parent, daemon=True).start(); "
    "print('[\"torch\", null]', flush=True); time.sleep(600)"
)
PARENT = f"""
from epochbench.doctor import process
popen = process.subprocess.Popen
def tell(*args, **options):
    made = popen(*args, **options)
    print(made.pid, flush=True)
    return made
process.subprocess.Popen = tell
process.look(program={CHILD_THAT_HANGS!r}, on_stage=lambda stage: print(stage, flush=True))
"""


def is_gone(pid, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


def test_the_other_process_ends_with_this_one_even_where_this_one_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "torch\n"
        parent.kill()
        parent.wait()
    assert is_gone(pid)


def test_a_fault_of_one_stage_leaves_the_others(monkeypatch):
    def broken():
        raise OSError("/usr/lib/libnvidia-ml.so: no such symbol")

    monkeypatch.setattr(child, "look_at_torch", lambda: {"kind": "cuda"})
    monkeypatch.setattr(child, "look_at_torchvision", lambda: {})
    monkeypatch.setattr(child, "look_at_driver", broken)
    monkeypatch.setattr(child, "device_names", lambda kind: [kind, f"{kind}:1"])
    monkeypatch.setattr(child, "look_at_device", lambda name: {"device": name})
    told = [message for message in child.go_through({}) if message[1] is not None]
    assert dict(told) == {
        "torch": {"kind": "cuda"},
        "torchvision": {},
        "driver": {"error": "OSError: libnvidia-ml.so: no such symbol"},
        "devices": {"names": ["cuda", "cuda:1"]},
        "cuda": {"device": "cuda"},
        "cuda:1": {"device": "cuda:1"},
    }


def test_where_the_devices_could_not_be_counted_the_first_one_is_tried(monkeypatch):
    monkeypatch.setattr(child, "look_at_device", lambda name: {"device": name})
    done = {"torch": {"kind": "cuda"}, "torchvision": {}, "driver": {}, "devices": {"error": "no answer within 2 s"}}
    assert list(child.go_through(done)) == [("cuda", None), ("cuda", {"device": "cuda"})]


def test_messages_are_lines_of_json():
    line = json.dumps(next(child.go_through({})))
    assert line == '["torch", null]'


def test_without_torchvision_its_version_is_none_and_all_else_goes_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert child.torchvision_version() is None
    monkeypatch.setattr(child, "look_at_torch", lambda: {"kind": "cuda"})
    monkeypatch.setattr(child, "look_at_driver", lambda: {})
    monkeypatch.setattr(child, "device_names", lambda kind: [])
    told = dict(child.go_through({}))
    assert told["torchvision"]["error"].startswith("ModuleNotFoundError: import of torchvision halted")
    assert told["devices"] == {"names": []}


def test_the_build_of_torchvision_is_read_from_its_files_and_not_by_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (package / "version.py").write_text("__version__ = '0.28.0+cu130'\nraise AssertionError\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    assert child.torchvision_version() == "0.28.0+cu130"
