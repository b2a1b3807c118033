"""What can go wrong by what the user gave.

InputError                  something given cannot be used; the message is one line and says what to do
├── datasets.DataError      a folder or file of data
├── measure.parcel.CannotTravel      a part of the workload cannot go to another process
├── measure.preparation.BadInput    the workload cannot be trained as it is
└── records.store.RecordError       a run file
"""


class InputError(ValueError):
    """Something that the user gave cannot be used. Shown as its one line, without a traceback."""


def type_and_text(error: BaseException) -> str:
    """An error as Python ends a traceback with it, in one line: "ValueError: what it says"."""
    return " ".join(f"{type(error).__name__}: {error}".split())
