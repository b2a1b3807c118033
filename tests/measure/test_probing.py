import sys

import pytest
import torch

from epochbench import availability, precisions
from epochbench.errors import InputError
from epochbench.measure import probing


def probe(*names):
    return probing.probe(lambda message: None, [0] * 5, lambda: 0.0, names=list(names))


def test_a_probe_tells_each_device_in_the_order_asked_and_torchs_own_versions():
    found = probe("cpu", "cpu")
    assert found["devices"] == [{"device": "cpu", "available": True, "refuses": precisions.refusals("cpu")}] * 2
    assert found["machine"] == {"cpu_capability": torch.backends.cpu.get_cpu_capability()}
    assert found["software"]["torch"] == torch.__version__
    assert found["software"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["software"]["cuda"] == torch.version.cuda


def test_the_reason_of_a_device_names_no_folder(monkeypatch):
    reason = "OSError: /home/ann/venv/lib/libcudart.so.12: cannot open shared object file"
    monkeypatch.setattr(availability, "probe", lambda name: {"device": name, "available": False, "reason": reason})
    (facts,) = probe("cuda")["devices"]
    assert facts["reason"] == "OSError: libcudart.so.12: cannot open shared object file"


def test_a_device_that_torch_does_not_know_is_refused():
    with pytest.raises(InputError, match="'gpu' is not a device"):
        probe("cpu", "gpu")


@pytest.mark.parametrize("fault", ["ImportError", "RuntimeError"])
def test_a_torchvision_that_does_not_load_has_no_version(monkeypatch, tmp_path, fault):
    (tmp_path / "torchvision.py").write_text(f"raise {fault}('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    assert probe("cpu")["software"]["torchvision"] is None


def test_cudnns_version_is_told_only_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    assert probe("cpu")["software"]["cudnn"] == "91900"
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: False)
    assert probe("cpu")["software"]["cudnn"] is None
