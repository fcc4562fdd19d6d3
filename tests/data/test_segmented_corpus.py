import pytest
import torch

from sightline.data.pair_tokens import PairTokens
from sightline.data.pairs import Pair
from sightline.data.segmented_corpus import SegmentedCorpus
from sightline.data.tokens import BOS, EOS, PAD, UNK, Tokenizer
from tests.data.calls import calls

TEXTS = ["the lower lowest slow", "a newer wider river", "slower rivers lower", "the the"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS * 5, kind="bpe", vocab_size=60)


def test_without_dropout_rows_are_those_of_the_tokenizer(tokenizer):
    cuts = SegmentedCorpus(tokenizer, TEXTS)
    rows = [tokenizer.encode(text) for text in TEXTS]
    assert [cuts[i] for i in range(len(TEXTS))] == rows
    assert cuts.lengths() == [len(row) for row in rows]
    batch = cuts.batch([2, 0], epoch=3, first=BOS, last=EOS)
    for got, row in zip(batch.tolist(), [rows[2], rows[0]], strict=True):
        assert got == [BOS, *row, EOS] + [PAD] * (batch.size(1) - len(row) - 2)


def test_with_dropout_every_epoch_cuts_anew_and_says_the_same(tokenizer):
    cuts = SegmentedCorpus(tokenizer, TEXTS, dropout=0.4, variants=7, seed=3)
    seen = set()
    for epoch in range(11):
        (row,) = cuts.batch([0], epoch).tolist()
        assert tokenizer.decode(row) == TEXTS[0]
        seen.add(tuple(row))
    assert len(seen) > 3


def test_a_word_is_cut_by_its_place_and_plainly_without_dropout(tokenizer):
    text = " ".join(["lowest"] * 23)
    cuts = SegmentedCorpus(tokenizer, [text], dropout=0.4, variants=7, seed=3)
    (row,) = cuts.batch([0], 0).tolist()
    words = " ".join(tokenizer.words(row)).split("▁")[1:]
    assert len(words) == 23
    assert len(set(words)) > 2, "one word of a text is cut in several ways"
    assert cuts[0] == tokenizer.encode(text)
    assert cuts.lengths() == [len(tokenizer.encode(text))]


def test_a_text_is_cut_the_same_in_whichever_batch(tokenizer):
    cuts = SegmentedCorpus(tokenizer, TEXTS, dropout=0.4, variants=7, seed=3)
    alone, together = cuts.batch([1], 5), cuts.batch([3, 1], 5)
    n = alone.size(1)
    assert torch.equal(alone[0], together[1, :n])
    assert not together[1, n:].any()
    again = SegmentedCorpus(tokenizer, TEXTS, dropout=0.4, variants=7, seed=3)
    assert torch.equal(again.batch([3, 1], 5), together)


def test_an_endless_word_is_cut_plainly_and_once(tokenizer):
    text = f"the {'lowestsl' * 20_000} the"
    cuts, made = calls(lambda: SegmentedCorpus(tokenizer, [text], dropout=0.4, seed=3))
    assert made["tokenize"] == 1, "its 17 ways are one"
    assert made.total() < 2000  # with dropout its 160,000 letters would take a hundred each
    ids = tokenizer.encode(text)
    assert cuts[0] == ids
    batches = {tuple(cuts.batch([0], epoch)[0].tolist()) for epoch in range(11)}
    assert len(batches) > 1, "the words around it are cut with dropout"
    for row in batches:
        assert tokenizer.decode(list(row)) == text
        assert len(row) - len(ids) < 6, "it is cut plainly, dropout would make many more pieces of it"


@pytest.mark.plain  # long, and its shapes are others' too
def test_each_word_is_cut_by_chances_of_its_own():
    texts = [f"{a}{b}" for a in "abcdefgh" for b in "stuvwxyz"]
    pairs = Tokenizer.train(texts, kind="bpe", vocab_size=500)
    shares = []
    for seed in range(7):
        cuts = SegmentedCorpus(pairs, texts, dropout=0.1, variants=16, seed=seed)
        merged = torch.stack([cuts.batch(range(64), epoch)[:, 1].eq(PAD) for epoch in range(40)])  # (40, 64)
        shares.append(1 - merged.float().mean().item())
    # A word of three letters has two merges: left whole with probability 0.9 for each, or cut.
    assert all(0.14 < share < 0.24 for share in shares), shares


def test_seeds_next_to_each_other_share_no_cuts(tokenizer):
    first, second = (
        SegmentedCorpus(tokenizer, TEXTS * 20, dropout=0.5, variants=2, seed=seed) for seed in (0, 1)
    )
    assert first.batch(range(80), 0).tolist() != second.batch(range(80), 0).tolist()
    ways = [
        {tuple(map(tuple, cuts.batch([0, 1, 2], e).tolist())) for e in range(40)} for cuts in (first, second)
    ]
    assert not ways[0] & ways[1]


@pytest.mark.parametrize("joint", [True, False])
def test_tokens_of_pairs_survive_saving(joint, tmp_path):
    tokens = PairTokens.train([Pair("ab ba", "xy yx")] * 3, kind="bpe", vocab_size=20, joint=joint)
    tokens.save(tmp_path)
    loaded = PairTokens.load(tmp_path)
    assert loaded.joint == tokens.joint == joint
    assert loaded.read("ab") == tokens.read("ab")
    assert loaded.target.decode(tokens.target.encode("xy yx")) == "xy yx"


def test_single_letters_have_single_tokens_and_their_places():
    pairs = [Pair("3.\u202fMai", "5-3"), Pair("le 3 mai", "5-3"), Pair("Mai 3", "5-3")]
    tokens = PairTokens.train(pairs, kind="char")
    text = "3.\u202fMai"
    words = tokens.source_words(text)
    assert words == [*"▁3.▁Mai", "<eos>"]
    for word, (start, end) in zip(words[:-1], tokens.offsets(text), strict=False):
        if word != "▁":
            assert text[start:end] == word


def test_the_mark_before_a_text_stands_for_none_of_its_letters():
    tokens = PairTokens.train([Pair("3 mai", "5-3")], kind="char")
    assert list(zip(tokens.source_words("3 m"), tokens.offsets("3 m"), strict=True)) == [
        ("▁", (0, 0)),
        ("3", (0, 1)),
        ("▁", (1, 2)),
        ("m", (2, 3)),
        ("<eos>", (3, 3)),
    ]
    pieces = PairTokens.train([Pair("ab ab", "x")] * 3, vocab_size=30)
    assert pieces.offsets("ab")[0] == (0, 2), "a piece with letters stands for them"


def test_small_letters_all_have_tokens():
    tokens = PairTokens.train([Pair("İ", "x")], kind="char", lowercase=True)
    assert UNK not in tokens.read("İ")


def test_a_letter_that_was_never_seen_is_found():
    tokens = PairTokens.train([Pair("abc", "x")], kind="char")
    assert tokens.unknown("abc") is None
    assert tokens.unknown("ab漢c") == "漢"
    assert UNK in tokens.read("漢")


@pytest.mark.bad_input
def test_wrong_kinds_are_refused(tokenizer):
    with pytest.raises(ValueError, match=r"unknown kind of tokens 'chars'.*did you mean 'char'"):
        PairTokens.train([Pair("a", "b")], kind="chars")
    with pytest.raises(ValueError, match="got one of kind 'word'"):
        SegmentedCorpus(Tokenizer.train(["a b"], kind="word"), ["a"])


def test_the_share_of_ids_that_are_unknown_is_counted_over_all_texts():
    texts = ["abc ab ab", "xyz", "", "ab ab"]
    tokenizer = Tokenizer.train(["abc ab"], kind="bpe", vocab_size=13)
    ids = [i for text in texts for i in tokenizer.encode(text)]
    assert 0 < ids.count(UNK) < len(ids)
    assert SegmentedCorpus(tokenizer, texts, dropout=0.5).unknown() == ids.count(UNK) / len(ids)
    assert SegmentedCorpus(tokenizer, texts[:1]).unknown() == 0
    assert SegmentedCorpus(tokenizer, [""]).unknown() == 0
