"""README's example runs as it is printed, and the files that README and CONTRIBUTING name are there."""

import re
import warnings
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()

transformers = pytest.importorskip("transformers")


class Words:
    """A tokenizer of words, in place of one from the hub."""

    def __call__(self, text, return_tensors):
        assert return_tensors == "pt"
        ids = torch.tensor([[len(word) % 31 for word in text.split()]])
        return transformers.BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})

    def convert_ids_to_tokens(self, ids):
        return [f"word{int(i)}" for i in ids]


def small(_name):
    sizes = {"hidden_size": 12, "num_hidden_layers": 6, "num_attention_heads": 3, "num_key_value_heads": 1}
    config = transformers.Qwen2Config(vocab_size=31, intermediate_size=7, **sizes)
    return transformers.Qwen2ForCausalLM(config)


def test_the_example_runs(tmp_path, monkeypatch):
    (tmp_path / "long.txt").write_text("the cat sat on the mat and " * 11)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda _name: Words())
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", small)
    code = re.search(r"```python\n(import torch.*?)```", README, re.DOTALL)[1]
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # its open() is never closed
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102
    assert names["layer"].entropy.shape == (1, 3, 77)
    assert names["layer"].map(64).shape == (1, 3, 64, 64)
    assert (tmp_path / "attention.html").read_text().startswith("<!doctype html>")


def test_the_first_page_stays_short():
    assert len(README.splitlines()) <= 115
    assert len(README.split()) <= 1000


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_files_that_it_names_are_there(page):
    text = (ROOT / page).read_text()
    named = re.findall(r"\]\(((?!https?:)[^)#]+)", text) + re.findall(r"`((?:tests|docs)/[\w/]+\.py)`", text)
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).exists()]
