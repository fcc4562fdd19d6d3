import itertools

import pytest
import torch

from sightline.decode.search import beam, greedy, sample
from sightline.models.captioner import Captioner, CaptionerConfig, _in_aligned_rows

TINY = {
    "vocab_size": 23,
    "image_size": 30,
    "patch": 10,
    "d_model": 12,
    "n_heads": 3,
    "n_layers": 2,
    "d_ff": 17,
    "d_hidden": 13,
    "n_encoder_layers": 1,
    "max_length": 11,
}
DECODERS = ("transformer", "recurrent")


def captioner(**changes):
    torch.manual_seed(3)
    model = Captioner(CaptionerConfig(**TINY | changes)).double().eval()
    with torch.no_grad():
        for weight in model.parameters():  # far from the beginning, where all words are nearly as likely
            weight.mul_(1.7)
    return model


def pictures(n):
    return torch.randn(n, 3, 30, 30, dtype=torch.double, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize(
    "settings",
    [{"decoder": name, "tied": tied} for name in DECODERS for tied in (True, False)]
    + [{"decoder": name, "local_keys": True} for name in DECODERS]
    + [{"positions": name, "n_encoder_layers": n} for name in ("learned", "rotary") for n in (0, 1)]
    + [{"relative_bias": True, "n_encoder_layers": 2}],
)
def test_steps_give_what_teacher_forcing_gives(settings):
    model, images = captioner(**settings), pictures(5)
    ids = torch.randint(4, 23, (5, 7))
    expected = model(images, ids).log_softmax(-1)
    state = model.start(images, look=True)
    for t in range(7):
        log_probs, state = model.step(state, ids[:, t])
        torch.testing.assert_close(log_probs.double(), expected[:, t], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            state.attention_weights.sum(-1), torch.ones_like(state.attention_weights[..., 0])
        )


@pytest.mark.parametrize(
    ("settings", "added"),
    [
        ({"positions": "learned"}, {"encoder.positions.weight", "decoder.positions.weight"}),
        ({"positions": "rotary"}, set()),
        ({"positions": "rotary", "n_encoder_layers": 0}, set()),
    ],
)
def test_positions_tell_words_and_patches_apart(settings, added):
    base = {"n_encoder_layers": settings.get("n_encoder_layers", 1)}
    plain, model = captioner(**base), captioner(**settings)
    assert set(model.state_dict()) - set(plain.state_dict()) == added
    images, ids = pictures(2), torch.tensor([[1, 5, 7, 9], [1, 7, 5, 9]])
    with torch.no_grad():
        logits = model(images[:1].expand(2, -1, -1, -1), ids)
        turned = model(images.flip(-1), ids)
    assert (logits[0, -1] - logits[1, -1]).abs().max() > 1e-3  # the order of words
    assert (turned[0] - logits[0]).abs().max() > 1e-3  # the places of patches


@pytest.mark.bad_input
def test_a_learned_table_ends_and_others_do_not():
    long = torch.full((2, 13), 5)
    with pytest.raises(ValueError, match="end at max_length=11, got T=13"):
        captioner(positions="learned")(pictures(2), long)
    for kind in ("sinusoidal", "rotary"):
        assert captioner(positions=kind)(pictures(2), long).shape == (2, 13, 23)


@pytest.mark.parametrize("words", [16, 17, 23])
def test_aligned_rows_are_the_same_rows(words):
    x, weight, bias = torch.randn(3, 5, 7), torch.randn(words, 7), torch.randn(words)
    expected = torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(_in_aligned_rows(x, weight, bias), expected)


def test_keys_and_values_made_of_different_things():
    model, images = captioner(local_keys=True), pictures(5)
    state = model.start(images)
    keys, values = model.encode(images).chunk(2, dim=-1)
    across = model.decoder.layers.layers[0].multihead_attn
    k, v = (x.unflatten(-1, (3, 4)).transpose(1, 2) for x in (
        keys @ across.in_proj_weight[12:24].T + across.in_proj_bias[12:24],
        values @ across.in_proj_weight[24:].T + across.in_proj_bias[24:],
    ))  # fmt: skip
    torch.testing.assert_close(state.memory[0], (k, v))


def test_a_recurrent_decoder_finds_by_keys_and_takes_in_values():
    model, images = captioner(local_keys=True, decoder="recurrent"), pictures(5)
    state = model.start(images)
    keys, values = model.encode(images).chunk(2, dim=-1)
    torch.testing.assert_close(state.inputs, (values, keys @ model.decoder.score.W.T))


@pytest.mark.parametrize("decoder", DECODERS)
def test_branched_and_reordered_rows_go_on_as_if_alone(decoder):
    model, images = captioner(decoder=decoder), pictures(3)
    said = torch.randint(4, 23, (3, 4))
    state = model.start(images, look=True)
    for t in range(2):
        _, state = model.step(state, said[:, t])
    state = state.branch(5)
    past = said[:, :2].repeat_interleave(5, 0)  # (15, 2)
    for seed in range(14):  # more steps than a first buffer has room for
        generator = torch.Generator().manual_seed(seed)
        within = torch.randint(5, (3, 5), generator=generator)
        rows = (within + 5 * torch.arange(3)[:, None]).flatten()
        state, past = state.reorder(rows), past[rows]
        ids = torch.randint(4, 23, (15,), generator=generator)
        log_probs, state = model.step(state, ids)
        past = torch.cat([past, ids[:, None]], 1)
    alone = model(images.repeat_interleave(5, 0), past)[:, -1].log_softmax(-1)
    torch.testing.assert_close(log_probs.double(), alone, atol=1e-5, rtol=1e-5)

    rows = torch.tensor([14, 0, 7, 7])
    few, ids = state.select(rows), torch.randint(4, 23, (4,))
    assert len(few) == 4
    torch.testing.assert_close(few.attention_weights, state.attention_weights[rows])
    log_probs, _ = model.step(few, ids)
    whole = torch.cat([past[rows], ids[:, None]], 1)
    alone = model(images[rows // 5], whole)[:, -1].log_softmax(-1)
    torch.testing.assert_close(log_probs.double(), alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_state_is_a_value(decoder):
    model, images = captioner(decoder=decoder), pictures(2)
    _, state = model.step(model.start(images), torch.tensor([5, 6]))
    first, one = model.step(state, torch.tensor([7, 8]))
    again, _ = model.step(state, torch.tensor([9, 10]))  # another branch, from the same state
    later, _ = model.step(one, torch.tensor([4, 4]))  # which must not have changed this one's past
    once_more, _ = model.step(state, torch.tensor([7, 8]))
    torch.testing.assert_close(first, once_more)
    assert not torch.allclose(first, again)
    ids = torch.tensor([[5, 7, 4], [6, 8, 4]])
    expected = model(images, ids)[:, -1].log_softmax(-1)
    torch.testing.assert_close(later.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("decoder", DECODERS)
def test_scores_and_attention_of_a_beam_are_those_of_its_words(decoder):
    model, images = captioner(decoder=decoder), pictures(4)
    found = beam(model, model.start(images, look=True), width=5, n_best=3, alpha=1.0, max_length=9)
    for i, k in itertools.product(range(4), range(3)):
        tokens = found.lists()[i][k]
        whole = tokens if len(tokens) == 9 else [*tokens, 2]
        state, total = model.start(images[i : i + 1], look=True), 0.0
        for t, (before, token) in enumerate(itertools.pairwise([1, *whole])):
            log_probs, state = model.step(state, torch.tensor([before]))
            total += log_probs[0, token].item()
            if t < len(tokens):
                torch.testing.assert_close(
                    found.attention_weights[i, k, t], state.attention_weights[0], atol=1e-5, rtol=1e-5
                )
        assert found.scores[i, k].item() == pytest.approx(total / len(whole), abs=1e-4)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_beam_of_one_is_greedy_and_draws_share_the_memory(decoder):
    model, images = captioner(decoder=decoder), pictures(3)
    one = beam(model, model.start(images), width=1, max_length=9)
    assert one.lists() == greedy(model, model.start(images), max_length=9).lists()
    assert sample(model, model.start(images), samples=4, max_length=5).ids.shape[:2] == (3, 4)


def test_decoding_outside_of_inference_mode_what_began_inside():
    model, images = captioner(), pictures(2)
    ids = torch.tensor([5, 6])
    with torch.inference_mode():
        _, state = model.step(model.start(images).branch(2), ids.repeat_interleave(2))
    log_probs, _ = model.step(state, torch.tensor([7, 8, 9, 10]))
    whole = torch.stack([ids.repeat_interleave(2), torch.tensor([7, 8, 9, 10])], 1)
    expected = model(images.repeat_interleave(2, 0), whole)[:, -1].log_softmax(-1)
    torch.testing.assert_close(log_probs.double(), expected, atol=1e-5, rtol=1e-5)


def test_the_layers_to_look_at_can_be_chosen():
    model, images = captioner(), pictures(2)
    ids = torch.tensor([1, 1])

    def seen(look):
        return model.step(model.start(images, look=look), ids)[1].attention_weights

    both = seen([0, 1])
    assert both.shape == (2, 6, 9)
    torch.testing.assert_close(both[:, :3], seen([0]))
    torch.testing.assert_close(both[:, 3:], seen(True))
    torch.testing.assert_close(both[:, 3:], seen([-1]))
    assert seen(False) is None
    for look_layer, expected in ((0, both[:, :3]), (-1, both[:, 3:]), (None, both)):
        other = captioner(look_layer=look_layer)
        found = other.step(other.start(images, look=True), ids)[1].attention_weights
        torch.testing.assert_close(found, expected)
        assert other.step(other.start(images), ids)[1].attention_weights is None


def test_in_training_steps_drop_nothing():
    for decoder in DECODERS:
        model = captioner(decoder=decoder, dropout=0.5)
        images = pictures(2)
        memory = model.encode(images)
        quiet, _ = model.step(model.decoder.start(memory), torch.tensor([1, 1]))
        model.train()
        torch.testing.assert_close(model.step(model.decoder.start(memory), torch.tensor([1, 1]))[0], quiet)


def test_received_is_what_the_weights_sum_to_and_has_gradients():
    model, images = captioner(decoder="recurrent"), pictures(3)
    ids = torch.tensor([[1, 5, 6, 7], [1, 5, 0, 0], [1, 9, 8, 0]])
    logits, received = model(images, ids, return_received=True)
    assert logits.shape == (3, 4, 23)
    state, total = model.start(images, look=True), torch.zeros(3, 9, dtype=torch.double)
    for t in range(4):
        _, state = model.step(state, ids[:, t])
        total += state.attention_weights[:, 0] * (ids[:, t] != 0)[:, None]
    torch.testing.assert_close(received, total)
    torch.testing.assert_close(received.sum(1), torch.tensor([4.0, 2.0, 3.0]).double())

    assert model.regularised
    assert not captioner(decoder="recurrent", doubly_stochastic=0.0).regularised
    assert not captioner().regularised
    term = model.regulariser(received)
    assert term.item() == pytest.approx((1 - received).square().mean().item())
    term.backward()
    assert model.decoder.score.v.grad.abs().max() > 0


def test_a_later_word_does_not_change_an_earlier_one():
    model, images = captioner(), pictures(2)
    ids = torch.randint(4, 23, (2, 6))
    changed = ids.clone()
    changed[:, 4:] = 3
    torch.testing.assert_close(model(images, ids)[:, :4], model(images, changed)[:, :4])


def test_tied_words_are_one_parameter():
    assert captioner(tied=False).decoder.output is not None
    assert not [name for name, _ in captioner().named_parameters() if "output" in name]


def test_the_grid_is_that_of_the_patches():
    model = captioner()
    assert model.grid == (3, 3)
    assert model.encode(pictures(2)).shape == (2, 9, 12)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"decoder": "recurent"}, "unknown decoder 'recurent'.*did you mean 'recurrent'"),
        ({"encoder": "vgg"}, "unknown encoder 'vgg'"),
        ({"n_heads": 5}, "n_heads=5 for d_model=12"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"n_layers": 0}, "n_layers must be at least 1, got 0"),
        ({"look_layer": 2}, "one of the 2 layers, got 2"),
        ({"local_keys": True, "encoder": "efficientnet_lite0"}, "local_keys.*'patches', got 'efficientnet"),
        ({"patch": 7}, "patch=7 for image_size=30"),
        ({"positions": "rotery"}, "unknown positions 'rotery'.*did you mean 'rotary'"),
        (
            {"decoder": "recurrent", "positions": "rotary", "n_encoder_layers": 0},
            "rotary positions .* a recurrent decoder .* n_encoder_layers=0; choose sinusoidal or learned",
        ),
        ({"positions": "rotary", "n_heads": 6}, "multiple of 4, .* got 2 for d_model=12 and n_heads=6"),
        ({"positions": "rotary", "n_heads": 4, "n_encoder_layers": 0}, "multiple of 2, got 3"),
        (
            {"relative_bias": True, "n_encoder_layers": 0},
            "encoder='patches' with n_encoder_layers=0; add layers",
        ),
        ({"relative_bias": True, "positions": "rotary", "n_encoder_layers": 1}, "got both; choose one"),
        ({"stem": 2}, "stem=2 for patch=10"),
    ],
)
def test_settings_that_do_not_fit(changes, words):
    with pytest.raises(ValueError, match=words):
        captioner(**changes)


@pytest.mark.bad_input
def test_inputs_that_do_not_fit():
    model = captioner()
    with pytest.raises(ValueError, match=r"\(B, 3, 30, 30\).*got \(2, 3, 31, 30\)"):
        model.encode(torch.zeros(2, 3, 31, 30, dtype=torch.double))
    with pytest.raises(ValueError, match="this one is 'transformer'"):
        model(pictures(1), torch.ones(1, 2, dtype=torch.long), return_received=True)
    with pytest.raises(ValueError, match="state's 2 rows, got 3"):
        model.step(model.start(pictures(2)), torch.tensor([1, 1, 1]))


@pytest.mark.parametrize("decoder", ["transformer", "recurrent"])
def test_no_pictures_have_no_captions(decoder):
    sizes = {"image_size": 16, "patch": 8, "d_model": 6, "n_heads": 3, "d_ff": 7, "d_hidden": 5}
    model = Captioner(CaptionerConfig(vocab_size=11, decoder=decoder, **sizes)).eval()
    assert beam(model, model.start(torch.zeros(0, 3, 16, 16)), width=3, max_length=5).lists() == []
