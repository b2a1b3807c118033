import pytest

from tests.datasets.petfiles import write_pets


@pytest.fixture
def own_cache(tmp_path_factory, monkeypatch):
    """A cache folder of the test's own, which is empty."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def pets(tmp_path, own_cache):
    """A folder with PetImages/Cat and PetImages/Dog, ten files each."""
    write_pets(tmp_path)
    return tmp_path
