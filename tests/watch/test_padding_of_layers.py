"""Padded items in torch's encoders: what is watched agrees with what is not, at the padded places too."""

import pytest
import torch
from torch import nn

import sightline as sl
from tests.look.look_oracle import near, randn

E, H, B, T = 8, 2, 3, 7
LENGTHS = {"some full": (3, T, 5), "all short": (3, 1, 5), "one empty": (3, 0, T)}

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")


def encoder(norm=False, package=nn, train=False, **options):
    torch.manual_seed(2)
    layer = package.TransformerEncoderLayer(E, H, 5, 0.0, batch_first=True)
    last = nn.LayerNorm(E) if norm else None
    if last is not None:
        nn.init.normal_(last.bias)
    return package.TransformerEncoder(layer, 2, norm=last, **options).train(train)


def padding(lengths):
    return torch.arange(T) >= torch.tensor(lengths)[:, None]


def both(model, *args, **kwargs):
    with torch.no_grad():
        blind = model(*args, **kwargs)
        with sl.watch(model) as seen:
            return blind, model(*args, **kwargs), seen


@pytest.mark.combinations
@pytest.mark.filterwarnings("ignore:.*hides every key of a row:UserWarning")
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32], ids=str)
@pytest.mark.parametrize("package", [nn, sl.nn], ids=["torch", "ours"])
def test_padded_places_are_the_same(lengths, norm, kind, package):
    model, x, mask = encoder(norm, package), randn(B, T, E, dtype=torch.float32), padding(lengths)
    forbidden = mask if kind is torch.bool else torch.zeros(B, T).masked_fill(mask, -torch.inf)
    blind, watched, seen = both(model, x, src_key_padding_mask=forbidden)
    assert torch.equal(both(model, x, None, forbidden)[1], watched)
    near(watched, blind, rtol=1e-5, atol=1e-5)
    near(watched[mask], blind[mask], rtol=0, atol=0)
    assert seen.names() == ["layers.0.self_attn", "layers.1.self_attn"]
    received = seen["layers.1.self_attn"].received.transpose(1, 2)  # torch's may be cut to the longest
    assert not received[mask[:, : received.size(1)]].any()


class OwnForward(nn.TransformerEncoder):
    def forward(self, src, mask, padding):
        for layer in self.layers:
            src = layer(src, mask, padding)
        return src


CASES = {
    "without nested tensors": lambda x, mask: (encoder(enable_nested_tensor=False), (x, None, mask)),
    "padding on the left": lambda x, mask: (encoder(), (x, None, mask.flip(-1))),
    "a mask besides": lambda x, mask: (encoder(), (x, torch.zeros(T, T, dtype=torch.bool), mask)),
    "no padding": lambda x, mask: (encoder(), (x,)),
    "a forward of one's own": lambda x, mask: (OwnForward(encoder().layers[0], 2).eval(), (x, None, mask)),
    "training": lambda x, mask: (encoder(train=True), (x, None, mask)),
}


@pytest.mark.parametrize("case", CASES)
def test_places_that_torch_does_not_clear_are_not_cleared(case):
    model, inputs = CASES[case](randn(B, T, E, dtype=torch.float32), padding((3, T, 5)))
    blind, watched, _ = both(model, *inputs)
    near(watched, blind, rtol=1e-5, atol=1e-5)
    assert watched.all()


@pytest.mark.parametrize("package", [nn, sl.nn], ids=["torch", "ours"])
def test_neither_with_gradients_nor_a_mode(package):
    model, x, mask = encoder(package=package), randn(B, T, E, dtype=torch.float32), padding((3, T, 5))

    def run():
        return model(x, src_key_padding_mask=mask)

    blind = run().detach()
    with sl.watch(model):
        assert torch.equal(run().detach(), blind)
    with torch.no_grad(), torch.device("cpu"):
        blind = run()
        with sl.watch(model):
            near(run(), blind, rtol=1e-5, atol=1e-5)


def test_a_layer_alone_and_after_an_exception():
    model, x, mask = encoder(), randn(B, T, E, dtype=torch.float32), padding((3, T, 5))
    with torch.no_grad():
        blind = model.layers[-1](x)
        with sl.watch(model):
            model(x, src_key_padding_mask=mask)
            near(model.layers[-1](x), blind, rtol=1e-5, atol=1e-5)
            with pytest.raises(RuntimeError, match=r"last_dim = 3, and weight\.size"):
                model(x[..., :3], src_key_padding_mask=mask)
            near(model.layers[-1](x), blind, rtol=1e-5, atol=1e-5)


def test_switched_off_by_the_user_and_watched_twice():
    model, x, mask = encoder(), randn(B, T, E, dtype=torch.float32), padding((3, T, 5))
    with torch.no_grad():
        blind = model(x, src_key_padding_mask=mask)
        with sl.watch(model), sl.watch(model.layers[0]):
            near(model(x, src_key_padding_mask=mask), blind, rtol=1e-5, atol=1e-5)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            blind = model(x, src_key_padding_mask=mask)
            with sl.watch(model):
                assert torch.equal(model(x, src_key_padding_mask=mask), blind)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


def test_a_whole_transformer_and_one_that_pools():
    torch.manual_seed(1)
    model = nn.Transformer(E, H, 2, 1, 5, batch_first=True).eval()
    x, y = randn(B, T, E, seed=1, dtype=torch.float32), randn(B, 5, E, seed=2, dtype=torch.float32)
    mask = padding((3, T, 5))
    blind, watched, _ = both(model, x, y, src_key_padding_mask=mask, memory_key_padding_mask=mask)
    near(watched, blind, rtol=1e-5, atol=1e-5)

    class Pools(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder()

        def forward(self, x, mask):
            return self.encoder(x, src_key_padding_mask=mask).sum(1)

    blind, watched, _ = both(Pools(), x, mask)
    near(watched, blind, rtol=1e-5, atol=1e-5)
