"""Names in one option, with commas between them."""

from __future__ import annotations

from epochbench.errors import InputError


def names_in(text: str, option: str | None = None) -> list[str]:
    """ "t4, l4" → ["t4", "l4"]. Raises InputError for an empty one, as after a comma at the end.

    `option` is named in the error where pytest does not name it by itself.
    """
    names = [name.strip() for name in text.split(",")]
    if len(names) > 1 and not all(names):
        what = f"{text!r} has nothing before or after a comma; leave that comma out"
        raise InputError(f"{option}: {what}" if option else what)
    return names
