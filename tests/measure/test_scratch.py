"""torch.compile's cache during a race: empty at its start, and the user's own again afterwards."""

import os
from pathlib import Path

import pytest

from epochbench.measure.scratch import compiled_anew

NAME = "TORCHINDUCTOR_CACHE_DIR"


@pytest.mark.parametrize("before", [None, "/their/own"])
def test_what_was_compiled_before_is_not_found_and_the_user_s_cache_is_left(monkeypatch, before):
    monkeypatch.delenv(NAME, raising=False)
    if before is not None:
        monkeypatch.setenv(NAME, before)
    with compiled_anew(True):
        folder = Path(os.environ[NAME])
        assert list(folder.iterdir()) == []
        (folder / "code.so").write_bytes(b"")
    assert os.environ.get(NAME) == before
    assert not folder.exists()


def test_after_an_error_too(monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    with pytest.raises(KeyboardInterrupt), compiled_anew(True):
        raise KeyboardInterrupt
    assert NAME not in os.environ


def test_a_race_that_compiles_nothing_changes_nothing(monkeypatch):
    monkeypatch.setenv(NAME, "/their/own")
    with compiled_anew(False):
        assert os.environ[NAME] == "/their/own"
