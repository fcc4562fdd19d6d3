"""The one place where tests of public behaviour reach into Sightline: paths that a CPU would not take."""

import contextlib
from unittest import mock

from sightline.watch import batching, intercept


@contextlib.contextmanager
def batched_on(*devices):
    """Let short calls wait for each other on these devices; give how many were measured at a time."""
    sizes, stack = [], batching._stack

    def counted(members):
        sizes.append(len(members))
        return stack(members)

    waiting = mock.patch.object(batching, "_DEVICES", frozenset(devices))
    with waiting, mock.patch.object(batching, "_stack", counted):
        yield sizes


@contextlib.contextmanager
def heard_by(way):
    """Hear operators by dispatch ``"keys"``, or by ``"a mode"`` as where torch.compile has been in use."""
    with mock.patch.object(intercept, "uses_compiled_code", return_value=way == "a mode"):
        yield
