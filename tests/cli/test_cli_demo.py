import base64
import re

import pytest
import torch

from sightline.attention.reference import scaled_dot_product_attention
from sightline.cli import main, mechanism

NAMES = ["positions", "attention", "masks", "scores"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "run"
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--mechanism", "--out", str(out)])
    assert not ended.value.code
    return out


def test_it_writes_pictures_and_a_page(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*(f"{name}.png" for name in NAMES), "index.html"]
    )


def test_the_page_holds_the_pictures(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    embedded = [base64.b64decode(data) for data in re.findall(r"base64,([^\"]+)", text)]
    assert len(embedded) == len(NAMES)
    assert all(data.startswith(b"\x89PNG") for data in embedded)
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert text.count("<figcaption>") == 4


def test_it_says_what_to_look_at_and_where(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["demo", "--mechanism", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert all(f"{name}.png: " in out for name in NAMES)
    assert out.endswith(f"\n{tmp_path / 'index.html'}\n")


def test_the_sentence_looks_where_the_caption_says():
    words, vectors, queries = mechanism.sentence()
    weights = scaled_dot_product_attention(queries, vectors, vectors)[1]
    looked_at = [words[i] for i in weights.argmax(dim=-1)]
    for t, word in enumerate(["cat", "cat", "cat", "mat", "mat", "mat", "sat", "cat", "it", "cat"]):
        assert looked_at[t] == word
    assert weights.max(dim=-1).values.min() > 0.5


def test_the_learned_scores_have_learned():
    _, vectors, queries = mechanism.sentence()
    weights = scaled_dot_product_attention(queries, vectors, vectors)[1]
    before = torch.random.get_rng_state()
    six = mechanism._six_scores(vectors, weights, steps=150)
    assert torch.equal(torch.random.get_rng_state(), before)
    for name in ("general", "low rank", "additive"):
        seen = torch.softmax(six[name](vectors, vectors), dim=-1)
        torch.testing.assert_close(seen, weights, rtol=0, atol=0.05)


@pytest.mark.bad_input
def test_a_file_in_the_way(tmp_path, capsys):
    (tmp_path / "run").write_text("kept")
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--mechanism", "--out", str(tmp_path / "run")])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "run' is a file, not a folder; choose another --out" in err
    assert err.count("\n") == 1
