import pytest

from sightline.data.pair_set import Pair
from sightline.data.pair_tokens import PairTokens


@pytest.fixture(scope="module")
def tokens():
    return PairTokens.train([Pair("a dog runs", "ein Hund rennt")], kind="char")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a dog", None),
        (" ", "something to translate, got ' '"),
        ("a 漢 dog", "no token for the character '漢', got it in 'a 漢 dog'"),
        ("a d\udce4g", "got the byte 0xe4; if it is Latin-1"),
        ("a \ud83d dog", r"got \ud83d, half of one"),
        ("dog " * 9, "at most 20 tokens, got 37 in 'dog dog dog"),
    ],
)
def test_each_text_is_judged_alone(tokens, text, sentence):
    found = tokens.problem(text, max_length=20)
    assert found is None if sentence is None else sentence in found
    assert "\n" not in (found or "")


def test_a_text_may_be_as_long_as_the_model_reads_and_unknown_letters_may_stand(tokens):
    assert tokens.problem("dog", max_length=5) is None  # a mark, three letters, the end
    assert "at most 4 tokens, got 5" in tokens.problem("dog", max_length=4)
    assert tokens.problem("a 漢 dog", max_length=20, unknown=True) is None
