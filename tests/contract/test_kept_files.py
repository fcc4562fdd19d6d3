"""Sights and recordings that were saved before open, and answer as they did when they were written."""

import pytest
import torch
from safetensors.torch import load_file

import sightline as sl
from tests.golden.sights import HERE, answers, asked, opened, recording

ANSWERS = load_file(HERE / "answers.safetensors")
FILES = sorted(file for file in HERE.glob("*.safetensors") if file.stem != "answers")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_answers_as_it_did(file):
    expected = {name for name in ANSWERS if name.startswith(f"{file.stem}/")}
    found = {f"{file.stem}/{call}/{name}": x for call, sight in opened(file) for name, x in asked(sight)}
    assert found.keys() == expected
    for name, x in found.items():
        torch.testing.assert_close(x, ANSWERS[name], rtol=1e-5, atol=2e-6, equal_nan=True, msg=name)


def test_every_answer_has_its_file():
    assert {name.partition("/")[0] for name in ANSWERS} == {file.stem for file in FILES}
    assert len(ANSWERS) > 250
    assert answers().keys() == ANSWERS.keys()


def test_what_a_recording_says_beside_its_sights():
    steps = recording(HERE / "seen steps.safetensors")
    assert steps.names() == [""]
    assert [(x.t, x.s) for x in steps.calls("")] == [(4, 4), (1, 5), (1, 6), (1, 7)]
    assert steps.tokens == (tuple(f"word{i}" for i in range(7)),)
    assert (steps.stack("").t, steps.stack("").s, len(steps.runs(""))) == (7, 7, 1)
    padded = recording(HERE / "seen padded.safetensors")[""]
    assert padded.is_padding[0, 0].tolist() == [False] * 4 + [True] * 3
    assert recording(HERE / "seen stored.safetensors")[""].source == "weights"
    assert [x.s for x in recording(HERE / "seen every second.safetensors").calls("")] == [3, 5]


def test_a_file_is_written_as_it_was_read(tmp_path):
    for file in FILES:
        if file.name.startswith("sight"):
            sight = sl.Sight.load(file)
            sight.save(tmp_path / file.name, keep=bool(sight.kept_nbytes))
            again, (before,) = sl.Sight.load(tmp_path / file.name), [sight]
            for (name, x), (_, y) in zip(asked(again), asked(before), strict=True):
                torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True, msg=name)
