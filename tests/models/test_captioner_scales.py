"""The scales of embeddings and positions: the same in training and in stepping."""

import pytest
import torch

from sightline.models.captioner import Captioner, CaptionerConfig

SIZES = {"vocab_size": 13, "image_size": 16, "patch": 8, "stem": 1, "n_convs": 1, "d_model": 12, "n_heads": 3}
SIZES |= {"n_layers": 2, "d_ff": 17, "dropout": 0.0, "max_length": 7}


@pytest.mark.parametrize(("embedding_scale", "position_scale"), [(1.0, 1.0), (0.5, 0.1), (2.0, 0.0)])
def test_a_step_says_what_the_whole_says(embedding_scale, position_scale):
    model = (
        Captioner(CaptionerConfig(embedding_scale=embedding_scale, position_scale=position_scale, **SIZES))
        .double()
        .eval()
    )
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    ids = torch.randint(4, 13, (2, 5))
    whole = model(images, ids).log_softmax(-1)
    state = model.start(images)
    for t in range(5):
        log_probs, state = model.step(state, ids[:, t])
        torch.testing.assert_close(log_probs.double(), whole[:, t], rtol=1e-5, atol=1e-6)


def test_without_positions_one_layer_does_not_know_the_order():
    sizes = SIZES | {"n_layers": 1}
    model = Captioner(CaptionerConfig(position_scale=0.0, **sizes)).eval()
    images, ids = torch.randn(1, 3, 16, 16), torch.tensor([[1, 5, 9, 4]])
    turned = ids[:, [1, 0, 2, 3]]
    torch.testing.assert_close(model(images, ids)[:, -1], model(images, turned)[:, -1])
    placed = Captioner(CaptionerConfig(position_scale=1.0, **sizes)).eval()
    assert not torch.allclose(placed(images, ids)[:, -1], placed(images, turned)[:, -1])


def test_a_run_folder_with_the_old_names_opens(tmp_path):
    model = Captioner(CaptionerConfig(embedding_scale=0.5, position_scale=0.25, **SIZES))
    model.save(tmp_path)
    config = tmp_path / "config.json"
    old = config.read_text().replace("embedding_scale", "volume").replace("position_scale", "order")
    assert '"volume": 0.5' in old
    config.write_text(old)
    (tmp_path / "manifest.json").unlink()  # written before there were any
    assert Captioner.load(tmp_path).config == model.config


@pytest.mark.bad_input
@pytest.mark.parametrize("given", [{"embedding_scale": 0.0}, {"position_scale": -0.5}])
def test_a_scale_of_nothing_is_refused(given):
    with pytest.raises(ValueError, match=str(next(iter(given.values())))):
        CaptionerConfig(**given)
