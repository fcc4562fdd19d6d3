"""Every model of the zoo has every property that applies to it, and is seen as is written down.

One entry of each mechanism runs in `make test`, the others in `make test-long`. Facts are those of
tests/golden/zoo.json, which ``python -m tests.zoo.record`` writes.
"""

import pytest

from tests.zoo.golden import differences, read
from tests.zoo.models import FAST, ZOO
from tests.zoo.properties import PROPERTIES, applies, facts_of

pytestmark = [pytest.mark.plain, pytest.mark.filterwarnings("ignore")]

WRITTEN = read()
CASES = [
    pytest.param(key, name, marks=[] if key in FAST.values() else [pytest.mark.long])
    for key, entry in ZOO.items()
    for name, holds in PROPERTIES.items()
    if applies(holds, entry)
]


@pytest.mark.parametrize(("key", "name"), CASES)
def test_zoo(key, name):
    entry = ZOO[key]
    for package in filter(None, ["transformers" if entry.is_hugging_face else "", entry.needs]):
        pytest.importorskip(package)
    facts = facts_of(entry, name)
    assert list(differences(facts, WRITTEN.get(key, {}).get(name))) == []


def test_everything_is_written_down():
    """No entry and no property is missing, and no recording is empty that has no reason to be."""
    cases = {case.values for case in CASES if not ZOO[case.values[0]].needs}
    assert {(key, name) for key, facts in WRITTEN.items() for name in facts if not ZOO[key].needs} == cases
    for key, facts in WRITTEN.items():
        assert facts["seen"]["calls"] or facts["seen"]["unseen"], key
        assert bool(facts["seen"]["unseen"]) == bool(ZOO[key].unseen), key
        assert facts.get("eagers_weights", "is not seen"), f"{key} is compared with nothing"


def test_each_mechanism_is_tried_at_once():
    assert len(set(FAST.values())) == len(FAST)
    calls = [sight for key in FAST.values() for x in WRITTEN[key]["seen"]["calls"].values() for sight in x]
    assert {sight.split(", ")[1] for sight in calls} == {"kernel", "weights", "flex"}


@pytest.mark.parametrize(
    ("found", "expected", "n"),
    [
        ({"a": 1e-6}, {"a": 1e-7}, 0),
        ({"a": 1e-5}, {"a": 1e-7}, 1),
        ({"a": 1e-9}, {"a": 1e-7}, 0),
        ({"a": 1, "b": [2]}, {"a": 1, "b": [3]}, 1),
        ({"a": {"b": 1}}, {"a": {}}, 1),
        ({}, {"a": 1}, 1),
        (None, {"a": 1}, 1),
    ],
)
def test_what_differs_is_named(found, expected, n):
    assert len(list(differences(found, expected))) == n
