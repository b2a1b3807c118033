"""What can go wrong by what the user gave.

InputError                  something given cannot be used; the message is one line and says what to do
├── datasets.DataError      a folder or file of data
├── measure.parcel.CannotTravel      a part of the workload cannot go to another process
├── measure.preparation.BadInput    the workload cannot be trained as it is
└── records.store.RecordError       a run file
"""

import re

_FROM_A_LOADER = re.compile(r"Caught \w+ in DataLoader worker process \d+\.\s+Original Traceback")
_TO_THE_LAST_FRAME = re.compile(r'.*^  File "[^\n]*\n(?: {4}[^\n]*\n)*', re.DOTALL | re.MULTILINE)


class InputError(ValueError):
    """Something that the user gave cannot be used. Shown as its one line, without a traceback."""


def type_and_text(error: BaseException) -> str:
    """An error as Python ends a traceback with it, in one line: "ValueError: what it says".

    What a process of a DataLoader raised comes from torch with its traceback as the text, which is left out.
    """
    text = str(error)
    if _FROM_A_LOADER.match(text) is not None:
        return f"{_one_line(_TO_THE_LAST_FRAME.sub('', text, count=1))} (in a process of the DataLoader)"
    return _one_line(f"{type(error).__name__}: {text}").removesuffix(":" if not text else "")


def _one_line(text: str) -> str:
    return " ".join(text.split())
