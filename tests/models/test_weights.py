import hashlib

import pytest
import torch
from torchvision.models import ResNet50_Weights

from epochbench.datasets import DataError
from models import weights


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def file_of(choice):
    return choice.url.rsplit("/", 1)[1]


def test_without_a_file_and_without_download_there_are_no_weights(checkpoints):
    assert weights.pretrained_resnet50(download=False) is None


@pytest.mark.parametrize("size", [0, 200])
def test_a_damaged_file_is_refused_by_its_name(checkpoints, size):
    name = file_of(ResNet50_Weights.IMAGENET1K_V1)
    (checkpoints / name).write_bytes(b"x" * size)
    with pytest.raises(DataError, match=rf"{name} .* damaged \({size} bytes\); delete it"):
        weights.pretrained_resnet50(download=False)
    assert (checkpoints / name).exists()


def test_a_whole_file_is_loaded_onto_the_cpu_without_running_code(checkpoints, monkeypatch):
    state = {"conv1.weight": torch.ones(2)}
    torch.save(state, checkpoints / "draft")
    content = (checkpoints / "draft").read_bytes()
    url = f"https://example.invalid/resnet50-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    monkeypatch.setattr(ResNet50_Weights.IMAGENET1K_V1.value, "url", url, raising=False)
    (checkpoints / file_of(ResNet50_Weights.IMAGENET1K_V1)).write_bytes(content)
    seen = {}
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda file, **options: seen.update(options) or load(file, **options))
    found = weights.pretrained_resnet50(download=False)
    assert found.name == "IMAGENET1K_V1"
    assert torch.equal(found.state["conv1.weight"], state["conv1.weight"])
    assert seen == {"map_location": "cpu", "weights_only": True}
