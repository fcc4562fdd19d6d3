import pytest
import torch

from sightline.data.pair_set import Pair
from sightline.data.pair_tokens import PairTokens
from sightline.data.tokens import EOS
from sightline.decode.search import beam, greedy
from sightline.models.rnn import RecurrentConfig, RecurrentTranslator
from sightline.models.translator import Translator, TranslatorConfig
from sightline.tasks.translate.generate import generate_translations, length_limit

TEXTS = ["ab", "abc abc abc", "c", "ba ab cab"]  # in no order of their lengths


@pytest.fixture(scope="module")
def tokens():
    return PairTokens.train([Pair(text, text.upper()) for text in TEXTS], kind="char")


@pytest.fixture(params=["recurrent", "transformer"])
def model(request, tokens):
    torch.manual_seed(3)
    sizes = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "max_length": 19}
    if request.param == "recurrent":
        return RecurrentTranslator(RecurrentConfig(d_model=11, d_attn=7, **sizes))
    return Translator(TranslatorConfig(d_model=12, n_heads=3, n_layers=2, d_ff=17, **sizes))


def test_translations_come_in_the_order_of_their_texts_whatever_their_neighbours(model, tokens):
    together = generate_translations(model, tokens, TEXTS, width=3, attention=True, batch_size=4)
    in_pairs = generate_translations(model, tokens, TEXTS, width=3, attention=True, batch_size=2)
    assert [one.source for one in together] == TEXTS
    for one, same in zip(together, in_pairs, strict=True):
        assert one.source_tokens == same.source_tokens == tokens.source_words(one.source)
        assert one.target_tokens == same.target_tokens
        torch.testing.assert_close(one.weights, same.weights)


@pytest.mark.parametrize("width", [1, 3])
def test_what_never_ends_is_cut_by_its_own_source_alone(tokens, width):
    torch.manual_seed(0)
    sizes = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "max_length": 29}
    model = RecurrentTranslator(RecurrentConfig(d_model=5, d_attn=3, **sizes))
    with torch.no_grad():
        model.bias[EOS] = -90.0
    lengths = [len(one.target_tokens) for one in generate_translations(model, tokens, TEXTS, width=width)]
    assert lengths == [min(29, 2 * len(tokens.read(text)) + 10) for text in TEXTS]
    assert len(set(lengths)) > 2


@pytest.mark.parametrize(("bias", "ended"), [(-90.0, False), (90.0, True)])
def test_only_one_that_the_model_did_not_end_has_all_the_tokens_it_may(tokens, bias, ended):
    sizes = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "max_length": 29}
    model = RecurrentTranslator(RecurrentConfig(d_model=5, d_attn=3, **sizes))
    with torch.no_grad():
        model.bias[EOS] = bias
    for one in generate_translations(model, tokens, TEXTS, width=2):
        assert (len(one.target_tokens) < length_limit(model, len(one.source_tokens))) == ended


def test_the_heads_are_those_of_the_search_layer_by_layer(tokens):
    torch.manual_seed(3)
    sizes = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "max_length": 19}
    model = Translator(TranslatorConfig(d_model=12, n_heads=3, n_layers=2, d_ff=17, **sizes)).eval()
    (one,) = generate_translations(model, tokens, ["ab"], width=1, attention=True)
    with torch.no_grad():
        state = model.start(torch.tensor([tokens.read("ab")]), look=True)
        found = greedy(model, state, max_length=18).attention_weights[0, 0]  # (T, L * H, S)
    torch.testing.assert_close(one.weights[1, 2], found[: len(one.target_tokens), 5])


def test_all_hypotheses_of_a_beam_come_best_first(model, tokens):
    (one,) = generate_translations(model, tokens, ["ab"], width=4, n_best=3)
    assert len(one.hypotheses) == 3
    assert one.hypotheses[0] == (one.text, one.score)
    scores = [score for _, score in one.hypotheses]
    assert scores == sorted(scores, reverse=True)


def test_every_written_token_has_its_weights_over_its_own_source(model, tokens):
    for one in generate_translations(model, tokens, TEXTS, width=2, attention=True):
        layers = (1, 1) if isinstance(model, RecurrentTranslator) else (2, 3)
        assert one.weights.shape == (*layers, len(one.target_tokens), len(one.source_tokens))
        assert one.weights.sum(-1).allclose(torch.ones(()))
        assert one.text == tokens.target.decode(
            [tokens.target.inner.token_to_id(word) for word in one.target_tokens]
        )
    assert generate_translations(model, tokens, TEXTS[:1])[0].weights is None


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_the_search_is_the_one_that_was_asked_for(model, tokens, alpha):
    source = torch.tensor([tokens.read("ab")])
    model.eval()
    with torch.no_grad():
        plain = greedy(model, model.start(source), max_length=18).lists()[0][0]
        wide = beam(model, model.start(source), width=4, alpha=alpha, max_length=18)
    (one,) = generate_translations(model, tokens, ["ab"], width=1)
    assert one.target_tokens == tokens.target.words(plain)
    (one,) = generate_translations(model, tokens, ["ab"], width=4, alpha=alpha)
    assert one.target_tokens == tokens.target.words(wide.lists()[0][0])
    assert one.score == pytest.approx(wide.scores[0, 0].item())


def test_a_translation_is_no_longer_than_the_model_takes(tokens):
    torch.manual_seed(0)
    sizes = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "max_length": 13}
    model = RecurrentTranslator(RecurrentConfig(d_model=5, d_attn=3, **sizes))
    with torch.no_grad():
        model.bias[EOS] = -90.0  # it never ends
    assert [
        len(one.target_tokens) for one in generate_translations(model, tokens, ["ab", "abc abc"], width=2)
    ] == [13, 13]


def test_a_source_beyond_the_training_gets_a_translation_of_its_own_length(tokens):
    sizes = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "max_length": 13}
    for positions, limits in (("sinusoidal", [12, 13, 13, 38]), ("learned", [12, 13, 13, 13])):
        model = Translator(TranslatorConfig(d_model=4, n_heads=2, d_ff=5, positions=positions, **sizes))
        assert [length_limit(model, n) for n in (1, 5, 13, 14)] == limits


def test_a_model_in_training_goes_on_training(model, tokens):
    for mode in (True, False):
        model.train(mode)
        generate_translations(model, tokens, ["ab"], width=1)
        assert model.training == mode


def test_a_model_in_training_goes_on_training_after_an_error(tokens):
    sizes = {"source_vocab_size": len(tokens.source), "vocab_size": len(tokens.target), "max_length": 3}
    model = Translator(TranslatorConfig(d_model=4, n_heads=2, d_ff=5, positions="learned", **sizes))
    with pytest.raises(ValueError, match="max_length=3 tokens"):
        generate_translations(model, tokens, ["ab ab ab"])
    assert model.training


@pytest.mark.bad_input
def test_a_text_without_a_letter_is_refused(model, tokens):
    with pytest.raises(ValueError, match="text 2 of 2 is ' '"):
        generate_translations(model, tokens, ["ab", " "])
