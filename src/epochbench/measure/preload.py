"""What the fork server loads once, so that a worker starts in a fraction of a second.

A torchvision that does not fit this torch raises RuntimeError, which would end the fork server.
"""

from contextlib import suppress

import epochbench.measure.protocol  # noqa: F401

with suppress(ImportError, RuntimeError):
    import torchvision  # noqa: F401
