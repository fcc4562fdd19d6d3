import json
import sys
from collections import Counter
from itertools import pairwise, product

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.merges import Merges
from sightline.data.tokens import BOS, EOS, PAD, SPECIALS, UNK, Tokenizer
from tests.data.calls import calls

LINES = [
    "Two young men in red shirts, one with a hat.",
    "A man's dog is running over the snow!",
    "The dogs are running; the men are standing.",
    'An older woman says "stand here" to the dog',
] * 3


@pytest.fixture(scope="module", params=["word", "bpe"])
def tokenizer(request):
    return Tokenizer.train(LINES, kind=request.param, vocab_size=97)


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train(LINES, kind="bpe", vocab_size=97, dropout=0.3)


def test_the_first_four_ids(tokenizer):
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert tokenizer.words(range(4)) == list(SPECIALS)


def test_words_are_kept_whole_and_punctuation_stands_alone():
    tokenizer = Tokenizer.train(LINES, kind="word")
    ids = tokenizer.encode("A man's red hat.")
    assert tokenizer.words(ids) == ["A", "man's", "red", "hat", "."]
    assert tokenizer.decode(ids) == "A man's red hat ."
    assert tokenizer.encode("cat") == [UNK]
    assert tokenizer.decode([BOS, *tokenizer.encode("the cat"), EOS, PAD, PAD]) == "the <unk>"


def test_words_are_counted_as_a_loop_counts_them():
    lines = ["a a a b", "b c c c c", "d"]
    counts = Counter(word for line in lines for word in line.split())
    tokenizer = Tokenizer.train(lines, kind="word", min_count=2)
    assert tokenizer.words(range(4, len(tokenizer))) == [w for w, n in counts.most_common() if n >= 2]
    small = Tokenizer.train(lines, kind="word", vocab_size=6)
    assert small.words([4, 5]) == ["c", "a"]
    assert len(small) == 6


def test_bpe_gives_the_text_back():
    tokenizer = Tokenizer.train(LINES, kind="bpe", vocab_size=97)
    for line in LINES:
        assert tokenizer.decode(tokenizer.encode(line)) == line
    assert tokenizer.decode(tokenizer.encode("  the   men\tstand. ")) == "the men stand."
    assert UNK in tokenizer.encode("ж")


@given(st.lists(st.sampled_from(["red", "dogs", "standing", "a", '"', ",", ".", "!"]), max_size=11))
def test_bpe_gives_any_text_of_known_letters_back(parts):
    tokenizer = Tokenizer.train(LINES, kind="bpe", vocab_size=61)
    for text in (" ".join(parts), "".join(parts)):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_vocabulary_is_never_larger_than_asked():
    for size in (5, 17, 53):
        assert len(Tokenizer.train(LINES, kind="bpe", vocab_size=size)) == size
        assert len(Tokenizer.train(LINES, kind="word", vocab_size=size)) <= size


def test_lower_case_is_for_the_asking(tokenizer):
    assert tokenizer.encode("The") != tokenizer.encode("the")
    low = Tokenizer.train(LINES, kind=tokenizer.kind, vocab_size=97, lowercase=True)
    assert low.encode("THE Dog") == low.encode("the dog")
    assert low.decode(low.encode("The dog")) == "the dog"


def test_names_of_special_entries_in_a_text_are_text(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    for one in (tokenizer, Tokenizer.load(tmp_path / "tokenizer.json")):
        ids = one.encode("the dog <eos> <pad> <bos>")
        assert not {PAD, BOS, EOS} & set(ids)


def test_training_twice_gives_the_same(tokenizer):
    again = Tokenizer.train(iter(LINES), kind=tokenizer.kind, vocab_size=97)
    assert again.inner.to_str() == tokenizer.inner.to_str()


def test_saved_and_loaded(bpe, tokenizer, tmp_path):
    for one in (bpe, tokenizer):
        path = tmp_path / "run" / "tokenizer.json"
        path.parent.mkdir(exist_ok=True)
        one.save(path)
        back = Tokenizer.load(str(path))
        assert (back.kind, back.dropout, len(back)) == (one.kind, one.dropout, len(one))
        assert back.inner.to_str() == one.inner.to_str()
        assert [x.name for x in path.parent.iterdir()] == ["tokenizer.json"]
        # The file is the library's own; it may read it.
        library = tokenizers.Tokenizer.from_file(str(path))
        if not one.dropout:
            assert library.encode(LINES[0]).ids == one.encode(LINES[0])


def test_one_string_an_id(bpe):
    ids = bpe.encode("The standing men")
    words = bpe.words(ids)
    assert len(words) == len(ids)
    assert "".join(words).replace("▁", " ").strip() == "The standing men"
    assert bpe.words(torch.tensor(ids).tolist()) == words


def test_dropout_only_when_asked_and_only_as_made(bpe, tokenizer):
    text = LINES[0]
    assert len({tuple(bpe.encode(text)) for _ in range(9)}) == 1
    assert len({tuple(bpe.encode(text, dropout=True)) for _ in range(9)}) > 1
    assert tokenizer.encode(text, dropout=True) == tokenizer.encode(text)  # made for none


def test_dropout_changes_the_cut_and_not_the_text(bpe):
    for line in LINES:
        for seed in range(7):
            ids = bpe.encode(line, dropout=True, seed=seed)
            assert bpe.decode(ids) == line
            assert len(ids) >= len(bpe.encode(line))
            assert ids == bpe.encode(line, dropout=True, seed=seed)


def test_torchs_seed_fixes_dropout_too(bpe):
    torch.manual_seed(5)
    first = [bpe.encode(line, dropout=True) for line in LINES]
    torch.manual_seed(5)
    assert [bpe.encode(line, dropout=True) for line in LINES] == first


@given(st.text("abcd ", max_size=23), st.integers(0, 5))
def test_merges_without_dropout_are_the_librarys(text, seed):
    tokenizer = Tokenizer.train(["abcabdab cab dab", "abab bada"] * 2, kind="bpe", vocab_size=19)
    merges = tokenizer._merges
    assert merges.encode(tokenizer._cut(text), 0.0, seed) == tokenizer.encode(text)


def chances(pieces, rank, p):
    """The paper's algorithm, every way the dice can fall, as a table from cut to probability."""
    pairs = [(rank[x], i) for i, x in enumerate(pairwise(pieces)) if x in rank]
    table = Counter()
    for dropped in product([True, False], repeat=len(pairs)):
        weight = p ** sum(dropped) * (1 - p) ** (len(pairs) - sum(dropped))
        left = [pair for pair, gone in zip(pairs, dropped, strict=True) if not gone]
        if not left:
            table[pieces] += weight
            continue
        _, i = min(left)
        merged = (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
        for cut, chance in chances(merged, rank, p).items():
            table[cut] += weight * chance
    return table


@pytest.mark.plain  # long, and its shapes are others' too
def test_dropout_falls_as_often_as_the_paper_says():
    merges = [("a", "b"), ("ab", "c"), ("b", "c"), ("a", "bc"), ("abc", "abc")]
    vocab = {piece: i for i, piece in enumerate(["a", "b", "c", "ab", "abc", "bc", "abcabc"])}
    ours = Merges(vocab, merges, unk=99)
    exact = chances(tuple("abcabc"), {pair: i for i, pair in enumerate(merges)}, 0.3)
    assert sum(exact.values()) == pytest.approx(1)
    n = 20_000
    names = list(vocab)
    drawn = Counter(tuple(names[i] for i in ours.encode(["abcabc"], 0.3, seed)) for seed in range(n))
    assert set(drawn) <= set(exact)
    assert sum(abs(drawn[cut] / n - exact[cut]) for cut in exact) / 2 < 0.02


@given(st.text("abc", min_size=1, max_size=31), st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 99))
def test_a_long_word_is_merged_as_a_short_one(word, p, seed):
    merges = [
        ("a", "b"),
        ("ab", "c"),
        ("b", "c"),
        ("a", "bc"),
        ("abc", "abc"),
        ("c", "c"),
        ("a", "a"),
        ("aa", "aa"),
    ]
    vocab = {piece: i for i, piece in enumerate(["a", "b", "c", *(a + b for a, b in merges)])}
    short, long = (Merges(vocab, merges, unk=99) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sightline.data.merges._SHORT", 100)
        expected = short.encode([word, word], p, seed)
        patch.setattr("sightline.data.merges._SHORT", 0)
        assert long.encode([word, word], p, seed) == expected
    assert not long._next


@pytest.mark.parametrize(("repeats", "most"), [(160, 20_000), (3000, 100)])
def test_a_text_without_spaces_is_cut_by_few_calls(repeats, most):
    """Up to 1000 letters by a heap, about 12 calls a letter; beyond them by one call of the library."""
    tokenizer = Tokenizer.train(["abab baab abba"] * 3, kind="bpe", vocab_size=30, dropout=0.1)
    text = "abbaab" * repeats
    ids, made = calls(lambda: tokenizer.encode(text, dropout=True, seed=0))
    assert tokenizer.decode(ids) == text
    assert made.total() < most
    assert tokenizer._merges.encode(tokenizer._cut(text), 0.0, 0) == tokenizer.encode(text)


def test_merges_forget_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr("sightline.data.merges._MOST_KEPT", 3)
    ours = Merges({"a": 0, "b": 1, "ab": 2}, [("a", "b")], unk=9)
    assert ours.encode(["abab", "bab", "xab"], 0.0, 0) == [2, 2, 1, 2, 9, 2]
    assert len(ours._next) <= 3


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"kind": "wrod"},
            "unknown kind of tokenizer 'wrod', expected one of 'bpe', 'word'; did you mean 'word'",
        ),
        ({"vocab_size": 4}, "vocab_size must be above 4, the special entries, got 4"),
        ({"min_count": 0}, "min_count must be at least 1, got 0"),
        ({"kind": "bpe", "dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"kind": "bpe", "dropout": -0.5}, "got -0.5"),
        ({"kind": "word", "dropout": 0.1}, "only BPE drops merges, got dropout=0.1 for kind 'word'"),
        ({"min_count": 99}, "the lines held none seen at least min_count=99 times"),
    ],
)
def test_settings_that_make_no_vocabulary(settings, words):
    with pytest.raises(ValueError, match=words):
        Tokenizer.train(LINES, **settings)


@pytest.mark.bad_input
def test_lines_that_are_none():
    with pytest.raises(ValueError, match="the lines held none"):
        Tokenizer.train([], kind="bpe")
    with pytest.raises(TypeError, match="several texts, got one of 12 letters"):
        Tokenizer.train("one sentence", kind="word")


@pytest.mark.bad_input
def test_an_id_that_is_none(tokenizer):
    with pytest.raises(ValueError, match=rf"an id must be in 0\.\.{len(tokenizer) - 1}, got 997"):
        tokenizer.words([997])


@pytest.mark.bad_input
def test_files_that_are_no_tokenizer(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match=r"there is no tokenizer '.*tokenizer\.json'"):
        Tokenizer.load(path)
    tokenizer.save(path)
    whole = path.read_text()
    for content in (whole[: len(whole) // 2], "", "[]", "{}", '{"model": {}}', "\0"):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"tokenizer\.json' is no tokenizer\.json or is damaged"):
            Tokenizer.load(path)
    other = json.loads(whole)
    other["model"] = {"type": "WordLevel", "vocab": {"hello": 0, "there": 1}, "unk_token": "hello"}
    other["added_tokens"] = []
    path.write_text(json.dumps(other))
    with pytest.raises(ValueError, match=r"must start with \['<pad>'.*got \['hello', 'there', None, None\]"):
        Tokenizer.load(path)


def test_without_the_library_there_is_a_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'sightline\[train\]'"):
        Tokenizer.train(LINES)
