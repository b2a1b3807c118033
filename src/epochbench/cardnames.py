"""The names of cards, as people write them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

_MAKERS = re.compile(r"nvidia|geforce|tesla|graphics|gpu|[^a-z0-9]")


def short_name(text: str) -> str:
    """A name without its maker, spaces and marks: "NVIDIA GeForce RTX 3090" → rtx3090."""
    return _MAKERS.sub("", text.lower())


def nearest(name: str, cards: Mapping[str, str]) -> list[str]:
    """The cards, three at most, whose names are most like it; `cards` maps short names to how they are told."""
    return list(dict.fromkeys(cards[one] for one in difflib.get_close_matches(short_name(name), cards, n=3)))
