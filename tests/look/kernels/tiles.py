"""What tiles find, in the record that kernels give: the oracle of tests that call a kernel."""

from unittest import mock

from sightline.look import kernels
from sightline.look.engine import run
from sightline.look.kernels.request import Stats
from sightline.look.measures import Entropy, Lse, Map, Peak, Received, Top
from sightline.look.source import Block, Local


def measure(inputs, request, lse=None):
    asked = [Lse()]
    asked += [Received()] * request.received + [Entropy()] * request.entropy + [Peak()] * request.peak
    if request.cells is not None:
        asked.append(Map(request.cells[:2], cells=request.cells))
    if request.top:
        asked.append(Top(request.top))
    with mock.patch.object(kernels, "are_here", return_value=False):
        found = run(asked, Local(Block(inputs, lse)))
    found["cells"] = found.pop("map", None)
    return Stats(**{name: found.get(name) for name in Stats._fields})
