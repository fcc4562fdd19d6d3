"""Hugging Face folders as the page asks them."""

import numpy as np
import pytest
import torch

from sightline.serve.limits import Limits
from sightline.serve.model import open_model
from sightline.show.explorer.arrays import unpack
from tests.serve.conftest import png

pytest.importorskip("transformers")
from tests.cli.test_cli_look import TEXT, folder, vision_folder  # noqa: F401 - fixtures

pytestmark = pytest.mark.plain


def test_a_folder_reads_a_text(folder):  # noqa: F811
    model = open_model(folder)
    assert (model.takes, model.kind) == ("text", "read")
    result = model.look(TEXT, Limits())
    watched = model.model.watch(TEXT, lambda _: True)
    meta = result.answers.meta()
    assert meta["tokens"][0]["words"][:3] == ["[CLS]", "the", "cat"]
    (layer,) = watched.seen.calls(watched.seen.names()[1])
    answer = result.answers.answer({"ask": "row", "sight": 1, "head": 2, "query": 3})
    np.testing.assert_allclose(unpack(answer["row"]), layer.rows([3])[0, 2, 0].numpy(), atol=1e-6)
    assert result.nbytes == watched.seen.nbytes > 0
    with pytest.raises(ValueError, match="reads at most 11 tokens, got 31"):
        model.look("the " * 30, Limits())


def test_a_folder_looks_at_an_image(vision_folder):  # noqa: F811
    model = open_model(vision_folder)
    assert (model.takes, model.examples()) == ("image", [])
    image = model.look(png(40, 30), Limits()).answers.meta()["image"]
    assert (image["rows"], image["columns"]) == (4, 4)


@pytest.mark.bad_input
def test_what_a_folder_does_not_take(folder, vision_folder):  # noqa: F811
    with pytest.raises(ValueError, match="--device is for runs"):
        open_model(folder, "cpu")
    pixels = torch.zeros(3, 8, 8, dtype=torch.uint8)
    with pytest.raises(ValueError, match="reads texts, got the image; give it a text"):
        open_model(folder).model.watch(pixels, lambda _: True)
    with pytest.raises(ValueError, match="reads images, got the text 'x'; name the file of an image"):
        open_model(vision_folder).model.watch("x", lambda _: True)
