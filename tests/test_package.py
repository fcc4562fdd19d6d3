"""The package as a user meets it: what it needs, and the names it promises."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import sightline as sl

ALONE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None there is what "not installed" looks like
import torch
import sightline as sl

q, k, v = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 11)
output = sl.attention(q, k, v, sl.masks.padding([3, 7]), score=sl.scores.Additive(3, 3, 2))
print(tuple(output.shape), tuple(sl.nn.MultiheadAttention(6, 2)(*[torch.ones(5, 6)] * 3)[0].shape))
"""
# A child for each of some programs, all from one process that has imported torch and nothing of ours.
EACH = """
import os, sys
import torch

for program in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, program
"""
LIGHT = """
a = torch.initial_seed()
import sightline
print(a == torch.initial_seed(), sorted({'matplotlib', 'typer', 'rich', 'PIL'} & set(sys.modules)))
"""
EXERCISES = """
import sightline as sl
print('textbook' in dir(sl), int(sl.textbook.create_mask(3).sum()))
"""
FUNCTION = """
import sightline.attention.masks, sightline as sl
import sightline.attention.attend
from sightline import attention
print(attention is sl.attention, type(sl.attention).__name__)
"""
EXTRAS = "jaxtyping,beartype,hypothesis,matplotlib,PIL,typer,rich,accelerate,tokenizers,transformers,timm"


def test_torch_and_numpy_are_enough():
    python = [sys.executable, "-W", "error", "-c", ALONE, EXTRAS]
    done = subprocess.run(python, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2, 5, 11) (5, 6)\n"


@pytest.fixture(scope="module")
def printed():
    """What each of the programs prints."""
    python = [sys.executable, "-c", EACH, LIGHT, EXERCISES, FUNCTION]
    done = subprocess.run(python, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return dict(zip([LIGHT, EXERCISES, FUNCTION], done.stdout.splitlines(), strict=True))


def test_importing_it_is_light(printed):
    assert printed[LIGHT] == "True []"


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (sl, "attention reference masks scores nn Mask"),
        (sl.reference, "scaled_dot_product_attention"),
        (sl.masks, "causal padding window dense bias from_ones Mask"),
        (sl.scores, "Dot ScaledDot Cosine General LowRank Additive Score"),
        (sl.nn, "SelfAttention MultiHeadSelfAttention MultiheadAttention Transformer TransformerEncoder"),
        (sl.nn, "TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer"),
    ],
)
def test_the_promised_names_are_there(space, names):
    for name in names.split():
        assert callable(getattr(space, name)) or name in {"reference", "masks", "scores", "nn"}
        assert name in dir(space)


def test_the_exercises_are_there_without_an_import_of_their_own(printed):
    assert printed[EXERCISES] == "True 6"


def test_every_public_name_exists():
    for space in (sl, sl.masks, sl.scores, sl.nn):
        assert all(hasattr(space, name) for name in space.__all__)


def test_attention_stays_the_function(printed):
    assert printed[FUNCTION] == "True function"


def test_every_other_name_of_nn_is_torchs():
    assert sl.nn.Linear is torch.nn.Linear
    assert sl.nn.functional is torch.nn.functional
    assert sl.nn.MultiheadAttention is not torch.nn.MultiheadAttention
    assert {"Linear", "SelfAttention"} <= set(dir(sl.nn))


@pytest.mark.bad_input
def test_a_name_nobody_has():
    with pytest.raises(AttributeError, match=r"neither sightline\.nn nor torch\.nn has 'Linaer'"):
        sl.nn.Linaer  # noqa: B018


def test_one_version():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert "version" not in project  # it stands in sightline/__init__.py alone
    assert re.fullmatch(r"\d+\.\d+\.\d+", sl.__version__)
    cited = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    assert f"version: {sl.__version__}\n" in cited
    assert (Path(sl.__file__).parent / "py.typed").is_file()
    assert sorted(name.split(">")[0] for name in project["dependencies"]) == ["numpy", "torch"]


def test_every_form_of_import_gives_torchs_own_modules() -> None:
    import sightline.nn.functional as functional
    import sightline.nn.utils.rnn as rnn
    from sightline.nn.modules.linear import Linear

    assert functional is torch.nn.functional
    assert rnn is torch.nn.utils.rnn
    assert Linear is torch.nn.Linear
    names: dict[str, object] = {}
    exec("from sightline.nn import *", names)  # noqa: S102
    assert names["Linear"] is torch.nn.Linear
    assert names["Transformer"] is sl.nn.Transformer
