"""Names in one option, with commas between them."""

from __future__ import annotations

from epochbench.errors import InputError


def names_in(text: str) -> list[str]:
    """ "t4, l4" → ["t4", "l4"]. Raises InputError for an empty one, as after a comma at the end."""
    names = [name.strip() for name in text.split(",")]
    if len(names) > 1 and not all(names):
        raise InputError(f"{text!r} has nothing before or after a comma; leave that comma out")
    return names
