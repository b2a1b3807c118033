"""What people's own models and data get wrong, in plain words, from the error that torch raises."""

from __future__ import annotations

import dis
import re
from types import FrameType, TracebackType
from typing import Any

HINTS = (
    (
        r"Cannot copy out of meta tensor|[Cc]annot be called on meta tensors",
        "a part of the model or of the batch is on the meta device, which holds no values",
    ),
    (
        r"Expected all tensors to be on the same device|is not on the expected device|Input type .* and weight type",
        "a part of the model or of the batch is left on another device, or has another type",
    ),
    (
        r"(?:loss|entropy|kl_div)\w*\(\).* must be Tensor, not (tuple|list|dict)",
        r"the model gives a \1, which the loss does not take; give Workload.step",
    ),
    (
        r"must be Tensor, not (tuple|list|dict)",
        r"the model or the loss takes a tensor here, and gets a \1; give Workload.step, or data that are tensors",
    ),
    (
        r"Expected more than 1 value per channel when training",
        "BatchNorm cannot train on a batch of one sample: drop the last batch, or take another batch size",
    ),
    (
        r"Kernel size can't be greater than actual input size|Output size is too small|[Ii]nput image .*smaller"
        r"|Padding size should be less than the corresponding input",
        "the images are too small for this model",
    ),
    (
        r"expected target dtype to be Long|expected scalar type Long",
        "the loss takes the number of a class for each sample, of type int64: give .long()",
    ),
    (
        r"(?:should|must) have the same dtype|expected scalar type|Input type .* and bias type|match weight dtype|"
        r"input must have the type",
        "the model and its input have different types: layers are float32 unless made otherwise, and NumPy makes "
        "float64; give .float()",
    ),
    (
        r"0D or 1D target tensor expected",
        "the loss takes the number of a class for each sample: give targets of shape (batch,)",
    ),
    (
        r"can't be cast to the desired output type Long",
        "the loss takes targets of the type of the outputs: give .float()",
    ),
    (
        r"index out of range in self",
        "an Embedding is given an index that is not below its number of rows",
    ),
    (
        r"(?:of|to be) equal size",
        "what differs in size makes no batch: pad it, in a collate_fn of a DataLoader that train_data makes, say",
    ),
    (
        r"default_collate: batch must contain tensors",
        "what is no tensor makes no batch: let the data set make one, with a transform, say, or give a DataLoader "
        "with a collate_fn",
    ),
    (
        r"Found no NVIDIA driver|not compiled with CUDA|No HIP GPUs are available",
        'leave .cuda() and .to("cuda") out: the model and each batch are on the device that is raced',
    ),
    (
        r"maximum recursion depth exceeded",
        "something calls itself without end, or a batch holds itself",
    ),
    (
        r"out of shared memory|Bus error|unable to open shared memory object|unable to mmap",
        "the DataLoader's workers are out of shared memory; `epochbench doctor` says what is free and what to do",
    ),
)
"""(pattern of the error's text, what it means): to add one is one entry."""
IN_EVALUATION = "in an evaluation: the model is in eval() mode, without gradients"
"""What an error is noted with that an evaluation raised."""


def hint(error: BaseException) -> str | None:
    """What an error most often means, and whether it is one of the evaluation; None where nothing is known of it."""
    known = [note for note in getattr(error, "__notes__", ()) if note == IN_EVALUATION]
    text = str(error)
    for pattern, words in HINTS:
        if (found := re.search(pattern, text)) is not None:
            known.append(found.expand(words))
            break
    return "; ".join(known) or None


def item_of(error: BaseException) -> int | None:
    """The index of the sample whose reading raised the error, where a DataLoader read it in this process."""
    trace: TracebackType | None = error.__traceback__
    index = None
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename.endswith("/_utils/fetch.py"):
            index = frame.f_locals.get("idx")  # Python 3.12 and later have it no more when an error was raised
            if index is None and trace.tb_next is not None:
                index = _asked_for(trace.tb_next.tb_frame)
        trace = trace.tb_next
    return index if isinstance(index, int) else None


def _asked_for(frame: FrameType) -> Any:
    """What a `__getitem__(self, index)` was called with; None of others, and where it may have changed that."""
    code = frame.f_code
    if code.co_name != "__getitem__" or code.co_argcount != 2:
        return None
    name = code.co_varnames[1]
    stored = [
        one.argval for one in dis.get_instructions(code) if one.opname.startswith(("STORE_FAST", "STORE_DEREF"))
    ]
    changed = any(name in (one if isinstance(one, tuple) else (one,)) for one in stored)
    return None if changed else frame.f_locals.get(name)
