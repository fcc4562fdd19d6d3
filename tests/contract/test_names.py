"""The public names, their signatures and the members of their classes are those that are written down."""

from tests.contract.names import contract
from tests.golden.written import differences, same_as_written


def test_names_signatures_and_members_are_those_written_down():
    same_as_written("contract.json", contract())


def test_what_has_changed_is_named():
    before = {"sl.a": "(x)", "sl.B": {"": "(x)", "c": "property"}, "sl.d": "(y=1)"}
    after = {"sl.a": "(x, y=2)", "sl.B": {"": "(x)"}, "sl.e": "()"}
    assert list(differences(after, before)) == [
        "sl.B: gone: c: property",
        "changed: sl.a: (x) -> (x, y=2)",
        "gone: sl.d: (y=1)",
        "new: sl.e: ()",
    ]
