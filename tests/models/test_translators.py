import pytest
import torch

from sightline.attention.reference import scaled_dot_product_attention
from sightline.data.tokens import PAD
from sightline.decode.search import beam, greedy
from sightline.models.recurrence import Bidirectional, Recurrence
from sightline.models.rnn import FEEDS, SCORES, RecurrentConfig, RecurrentTranslator
from sightline.models.translator import POSITIONS, Translator, TranslatorConfig, open_translator
from sightline.positions import sinusoidal

B, S, T, VS, V = 3, 7, 5, 11, 13
SIZES = {"source_vocab_size": VS, "vocab_size": V, "n_layers": 2, "max_length": 23}


def recurrent(**settings):
    torch.manual_seed(1)
    return RecurrentTranslator(RecurrentConfig(**SIZES, **{"d_model": 6, "d_attn": 4, "rank": 2, **settings}))


def transformer(**settings):
    torch.manual_seed(1)
    shape = {"d_model": 12, "n_heads": 3, "d_ff": 17}
    return Translator(TranslatorConfig(**SIZES, **{**shape, **settings}))


def some():
    source = torch.randint(4, VS, (B, S))
    source[1, 3:] = PAD
    return source, torch.randint(4, V, (B, T))


MODELS = {
    **{
        f"{cell}, {feed}": (recurrent, {"cell": cell, "feed": feed})
        for cell in ("gru", "lstm")
        for feed in FEEDS
    },
    **{f"{score}": (recurrent, {"score": score, "feed": "none"}) for score in SCORES},
    "not tied": (recurrent, {"tied": False}),
    **{f"{positions}": (transformer, {"positions": positions}) for positions in POSITIONS},
    "post-norm": (transformer, {"norm": "post", "attention_dropout": 0.0}),
    "no tie": (transformer, {"tied": False}),
}


@pytest.mark.parametrize("name", MODELS)
def test_steps_give_the_numbers_of_the_whole(name):
    make, settings = MODELS[name]
    model, (source, target) = make(**settings).eval(), some()
    with torch.no_grad():
        whole = model(source, target).log_softmax(-1)
        state = model.start(source, look=True)
        for t in range(T):
            log_probs, state = model.step(state, target[:, t])
            torch.testing.assert_close(log_probs, whole[:, t], atol=2e-5, rtol=1e-5)
            assert state.attention_weights.sum(-1).allclose(torch.ones(()))
            assert not state.attention_weights[1, :, 3:].any(), "padding is never looked at"


@pytest.mark.parametrize("name", MODELS)
def test_padding_and_neighbours_change_nothing(name):
    make, settings = MODELS[name]
    model, (source, target) = make(**settings).eval(), some()
    with torch.no_grad():
        together, alone = model(source, target), model(source[1:2, :3], target[1:2])
    torch.testing.assert_close(alone[0], together[1], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_later_token_has_no_gradient_on_an_earlier_output_and_all_learns(name):
    make, settings = MODELS[name]
    model, (source, target) = make(**settings).eval(), some()
    later = target.clone()
    later[:, 3:] = 4
    torch.testing.assert_close(model(source, later)[:, :3], model(source, target)[:, :3])
    model(source, target).square().sum().backward()

    for part, parameter in model.named_parameters():
        flat = settings.get("score") == "none" and part.startswith(("to_query", "to_key"))
        assert parameter.grad is not None
        assert flat or part.endswith("to_key.bias") or parameter.grad.abs().sum() > 0, part


def test_a_beam_shares_the_source_and_equals_rows_of_its_own():
    model, (source, _) = recurrent(feed="readout").eval(), some()
    with torch.no_grad():
        state = model.start(source, look=True).branch(2)
        ids = torch.randint(4, V, (2 * B,))
        shared, after = model.step(state, ids)
        rows = torch.arange(B).repeat_interleave(2)
        own, apart = model.step(model.start(source, look=True).select(rows), ids)
        torch.testing.assert_close(shared, own)
        order = torch.tensor([1, 0, 3, 2, 4, 4])
        ids = torch.randint(4, V, (2 * B,))
        torch.testing.assert_close(
            model.step(after.reorder(order), ids)[0], model.step(apart.select(order), ids)[0]
        )
    assert {x.size(0) for x in after.inputs} == {B}
    assert len(after) == 2 * B


def test_what_is_fed_is_what_the_setting_says():
    source, target = some()
    for feed in ("context", "readout"):
        model = recurrent(feed=feed).eval()
        seen = {}
        model.readout.register_forward_hook(
            lambda _, given, got, seen=seen: seen.update(given=given[0], got=got)
        )
        with torch.no_grad():
            _, state = model.step(model.start(source), target[:, 0])
        expected = seen["given"][:, 6:12] if feed == "context" else seen["got"].tanh()
        torch.testing.assert_close(state.rows[-1], expected)


def test_encoder_layers_far_from_the_input_keep_a_short_way_to_it():
    torch.manual_seed(1)
    sizes = {**SIZES, "n_layers": 3}
    model = RecurrentTranslator(RecurrentConfig(**sizes, d_model=6, d_attn=4)).eval()
    source, _ = some()
    real = source != PAD
    with torch.no_grad():
        first = model.encoder[0](model.source_embedding(source), real)
        second = model.encoder[1](first, real)
        third = model.encoder[2](second, real)
        keys, _, _ = model.start(source).inputs
        torch.testing.assert_close(keys, model.to_key(second + third))


def test_embeddings_are_scaled_up_before_positions_are_added():
    model, (source, _) = transformer(positions="sinusoidal").eval(), some()
    seen = []
    model.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        model.encode(source)
        expected = model.source_embedding(source) * 12**0.5 + sinusoidal(S, 12)
    torch.testing.assert_close(seen[0], expected)


def test_a_cosine_is_stretched_and_no_other_score_is():
    scales = {score: recurrent(score=score, d_attn=9).scale for score in SCORES}
    assert scales.pop("cosine") == 3
    assert set(scales.values()) == {1.0}


def test_norms_and_dropout_stand_where_the_settings_say():
    model = transformer(norm="post", dropout=0.3, attention_dropout=0.1)
    assert not any(layer.norm_first for layer in (*model.encoder.layers, *model.decoder.layers))
    assert model.encoder.norm is model.decoder.norm is None
    for positions in POSITIONS:
        model = transformer(norm="pre", dropout=0.3, attention_dropout=0.1, positions=positions)
        assert all(layer.norm_first for layer in (*model.encoder.layers, *model.decoder.layers))
        found = [part.dropout for part in model.modules() if isinstance(part, torch.nn.MultiheadAttention)]
        assert found == [0.1] * 6
        assert {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)} == {0.3}


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_source_at_the_limit_is_read(positions):
    source, model = torch.full((1, 23), 4), transformer(positions=positions).eval()
    with torch.no_grad():
        found = greedy(model, model.start(source), max_length=23)
    assert found.lengths.max() <= 23


@pytest.mark.plain  # the steps of the test above, and more of them
@pytest.mark.parametrize("name", [name for name in MODELS if name != "learned"])
def test_what_has_no_end_goes_on_beyond_the_lengths_of_the_training(name):
    make, settings = MODELS[name]
    model, source, target = (
        make(**settings).eval(),
        torch.randint(4, VS, (B, 31)),
        torch.randint(4, V, (B, 29)),
    )
    with torch.no_grad():
        whole = model(source, target).log_softmax(-1)
        state = model.start(source)
        for t in range(29):
            log_probs, state = model.step(state, target[:, t])
            torch.testing.assert_close(log_probs, whole[:, t], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("make", [recurrent, transformer])
def test_a_beam_of_one_is_greedy(make):
    model, (source, _) = make().eval(), some()
    with torch.no_grad():
        one = beam(model, model.start(source), width=1, max_length=9)
        best = greedy(model, model.start(source), max_length=9)
    assert one.lists() == best.lists()


def test_scaled_dot_attention_is_the_reference():
    model, (source, _) = recurrent(score="scaled_dot", feed="none").eval(), some()
    state = model.start(source)
    s = torch.randn(B, T, 6)
    context, _ = model._look(state, s)
    keys, values, real = state.inputs
    expected, _ = scaled_dot_product_attention(model.to_query(s), keys, values, real[:, None].expand(B, T, S))
    torch.testing.assert_close(context, expected)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_both_ways_are_torchs_own_over_packed_sequences(cell):
    layer = Bidirectional(cell, 3, 5)
    kind = torch.nn.GRU if cell == "gru" else torch.nn.LSTM
    theirs = kind(3, 5, batch_first=True, bidirectional=True)
    for name, parameter in layer.ahead.rnn.named_parameters():
        getattr(theirs, name).data.copy_(parameter)
    for name, parameter in layer.back.rnn.named_parameters():
        getattr(theirs, f"{name}_reverse").data.copy_(parameter)
    x, lengths = torch.randn(B, S, 3), torch.tensor([S, 2, 4])
    real = torch.arange(S) < lengths[:, None]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(layer(x, real) * real[..., None], expected)


def test_recurrence_runs_under_mixed_precision():
    model, (source, target) = recurrent(feed="none"), some()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(source, target).float().square().sum()
    loss.backward()
    assert model.embedding.weight.grad.isfinite().all()


@pytest.mark.parametrize("make", [recurrent, transformer])
def test_a_run_folder_keeps_the_model(make, tmp_path):
    model, (source, target) = make().eval(), some()
    model.save(tmp_path)
    loaded = open_translator(tmp_path)
    assert type(loaded) is type(model)
    torch.testing.assert_close(loaded(source, target), model(source, target))


def test_shared_embeddings_are_one():
    model = Translator(
        TranslatorConfig(source_vocab_size=V, vocab_size=V, shared=True, d_model=12, n_heads=3, d_ff=17)
    )
    assert model.source_embedding is None


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("config", "settings", "sentence"),
    [
        (RecurrentConfig, {"score": "dott"}, r"unknown score 'dott'.*did you mean 'dot'"),
        (RecurrentConfig, {"cell": "gruu"}, r"unknown cell 'gruu'"),
        (RecurrentConfig, {"feed": "all"}, r"unknown feed 'all'"),
        (RecurrentConfig, {"d_model": 0}, r"d_model must be at least 1, got 0"),
        (RecurrentConfig, {"dropout": 1.5}, r"dropout must be at least 0 and below 1, got 1.5"),
        (RecurrentConfig, {"shared": True, "vocab_size": 7}, r"got 0 and 7 tokens"),
        (RecurrentConfig, {"architecture": "transformer"}, r"got architecture 'transformer'"),
        (TranslatorConfig, {"positions": "rotery"}, r"unknown positions 'rotery'.*did you mean 'rotary'"),
        (TranslatorConfig, {"n_heads": 3}, r"n_heads=3 for d_model=256"),
        (TranslatorConfig, {"n_heads": 2, "d_model": 6, "positions": "rotary"}, r"even, got 3"),
        (TranslatorConfig, {"attention_dropout": -1.0}, r"got -1.0"),
        (TranslatorConfig, {"shared": True, "vocab_size": 7}, r"got 0 and 7 tokens"),
        (TranslatorConfig, {"architecture": "x"}, r"got architecture 'x'"),
    ],
)
def test_settings_that_make_no_model_are_refused(config, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        config(**settings)


@pytest.mark.bad_input
def test_a_cell_that_is_none_is_refused():
    with pytest.raises(ValueError, match="unknown cell 'rnn'"):
        Recurrence("rnn", 2, 3)


@pytest.mark.bad_input
def test_a_source_beyond_a_learned_table_is_refused():
    model = transformer(positions="learned")
    with pytest.raises(ValueError, match="max_length=23 tokens, got a source of 24"):
        model.start(torch.ones(1, 24, dtype=torch.long))
    with pytest.raises(ValueError, match="end at max_length=23, got T=24"):
        model(torch.ones(1, 5, dtype=torch.long), torch.ones(1, 24, dtype=torch.long))


@pytest.mark.bad_input
def test_the_other_model_is_refused(tmp_path):
    recurrent().save(tmp_path)
    with pytest.raises(ValueError, match=r"must be transformer, its config\.json says 'recurrent'"):
        Translator.load(tmp_path)
