import hashlib

import pytest
import torch
from torchvision.models import ResNet50_Weights, resnet50

from epochbench.datasets import DataError, DataOptions
from models import resnet50_transfer, weights


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


def test_a_damaged_file_is_fetched_anew_where_that_is_allowed(checkpoints, monkeypatch):
    state = {"conv1.weight": torch.ones(2)}
    torch.save(state, checkpoints / "draft")
    content = (checkpoints / "draft").read_bytes()
    begins = hashlib.sha256(content).hexdigest()[:8]
    url = f"https://example.invalid/resnet50-{begins}.pth"
    monkeypatch.setattr(ResNet50_Weights.IMAGENET1K_V1.value, "url", url, raising=False)
    file = checkpoints / file_of(ResNet50_Weights.IMAGENET1K_V1)
    file.write_bytes(b"x" * 200)
    asked = []

    def fetch(address, path, *, sha256_prefix):
        asked.append((address, path, sha256_prefix))
        path.write_bytes(content)

    monkeypatch.setattr("epochbench.datasets.download.fetch", fetch)
    for _ in range(2):
        found = weights.pretrained_resnet50(download=True)
        assert torch.equal(found.state["conv1.weight"], state["conv1.weight"])
    assert asked == [(url, file, begins)]


@pytest.mark.parametrize("pretrained", [True, False])
def test_the_model_says_whether_its_backbone_is_pretrained_or_random(monkeypatch, pretrained):
    found = weights.Pretrained("IMAGENET1K_V1", resnet50().state_dict()) if pretrained else None
    monkeypatch.setattr(resnet50_transfer, "pretrained_resnet50", lambda *, download: found)
    monkeypatch.setattr(resnet50_transfer, "settle", lambda backbone, photographs: None)
    monkeypatch.setattr(resnet50_transfer, "cats_vs_dogs", lambda data, *, train: None)
    model = resnet50_transfer.make_model(DataOptions())
    assert model.weights_source == ("pretrained IMAGENET1K_V1" if pretrained else "random frozen backbone")
