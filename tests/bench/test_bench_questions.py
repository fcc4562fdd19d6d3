"""The cases of the later questions: every one of them runs and agrees with float64."""

import pytest
import torch

from sightline.bench import look, look_long, look_questions

CASES = {
    case.name: case
    for module in (look_questions, look_long)
    for case in module.cases(torch.device("cpu"), quick=True)
}


@pytest.mark.parametrize("name", CASES)
def test_cases_run_and_agree(name):
    comparison = CASES[name].setup()
    results = {}
    for contestant in comparison.contestants:
        with contestant.context():
            results[contestant.name] = contestant.run()
    if comparison.exact is None:
        return
    ours = comparison.contestants[0].checked(results["sightline"])
    for found, truth in zip(ours, comparison.exact(), strict=True):
        torch.testing.assert_close(found.double(), truth, rtol=1e-4, atol=1e-5)


def test_they_are_part_of_bench_look():
    names = [case.name for case in look.cases(torch.device("cpu"), quick=True)]
    assert set(CASES) <= set(names)
