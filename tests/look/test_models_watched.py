"""The table of watched models, in a small version: none raises, none is dark without a reason."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("transformers")

pytestmark = pytest.mark.plain  # the shapes of what it calls are checked by the tests of watches

SCRIPT = Path(__file__).parents[2] / "docs" / "figures" / "models_watched.py"


@pytest.fixture(scope="module")
def rows():
    spec = importlib.util.spec_from_file_location("models_watched", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        spec.loader.exec_module(script)
    return script, script.try_all(script.SMALL)


def test_every_model_is_seen_and_unchanged(rows):
    script, found = rows
    tried = {(row.name, row.implementation) for row in found}
    assert {("BERT", "sdpa"), ("BERT", "eager"), ("gpt-oss", "eager"), ("GPT-J", "eager")} <= tried
    for row in found:
        assert row.is_equal, row
        assert row.seen // script.RUNS >= 1 or row.note, row
        if row.name == "Longformer":
            assert "cut into blocks" in row.note
        else:
            assert row.unseen == 0, row
        for error in (row.error, row.padded, row.cached):
            assert error is None or error < 1e-5, row
        assert row.half is None or row.half <= 1e-3, row
    for column, least in {"error": 10, "padded": 8, "cached": 4, "half": 8}.items():
        assert sum(getattr(row, column) is not None for row in found) >= least, column


def test_the_page(rows):
    script, found = rows
    page = script.table(found)
    assert "| BERT | sdpa | 2 |  | kernel | bit-equal |" in page
    assert "- Longformer: its weights were cut into blocks" in page
    assert page.count("\n|") == len(found) + 2
