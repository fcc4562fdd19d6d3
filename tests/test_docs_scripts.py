"""Scripts of the course, in small: what their pages say of them holds."""

import runpy
from pathlib import Path
from random import Random

import pytest
import torch

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("is_causal", [False, True], ids=["masked", "causal"])
def test_pretraining_teaches_what_eight_labels_do_not_say(is_causal):
    lesson = runpy.run_path(str(ROOT / "examples" / "pretraining.py"))
    torch.manual_seed(0)
    model = lesson["LanguageModel"](is_causal=is_causal)
    losses = lesson["pretrain"](model, 40)
    assert losses[-1] < 0.9 * losses[0]
    tokens = lesson["batch"](3, Random(0))  # noqa: S311
    assert tokens.shape == (3, lesson["T"])
    if is_causal:  # the name's place does not see what comes after it
        other = tokens.clone()
        other[:, lesson["NAME"] + 1 :] = lesson["MASK"]
        torch.testing.assert_close(model.kinds(tokens), model.kinds(other))
