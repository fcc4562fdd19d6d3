import pytest
import torch

from sightline.bench import decode_translate, train_translate
from sightline.bench.decode_translate import _search, _TranslatorWithoutCache
from sightline.bench.train import with_torch_layers
from sightline.models.translator import Translator, TranslatorConfig

CPU = torch.device("cpu")


def small(**settings):
    torch.manual_seed(0)
    shape = {"d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 17, "norm": "post"}
    return Translator(TranslatorConfig(source_vocab_size=19, vocab_size=19, shared=True, **shape)).eval()


def test_the_loop_without_a_cache_finds_what_ours_finds():
    ours, theirs = small(), _TranslatorWithoutCache(with_torch_layers(small()).eval())
    source = torch.randint(4, 19, (3, 7))
    with torch.inference_mode():
        a, b = _search(ours, source), _search(theirs, source)
    assert a.lists() == b.lists()
    torch.testing.assert_close(a.scores, b.scores)


def test_cases_have_the_bars_that_are_promised():
    cases = decode_translate.cases(CPU, quick=True)
    assert {case.timed.bar for case in cases} == {2.0, 5.0}
    assert all("translate" in case.name for case in cases)
    (one,) = train_translate.cases(CPU, quick=True)
    assert one.timed.bar == 1.0
    assert one.examples[1] == "target tokens"


def test_marian_of_the_same_shape_has_as_many_weights_and_writes_as_much():
    pytest.importorskip("transformers")
    ours = small()
    theirs = decode_translate.marian(ours.config).eval()
    counted = [p.numel() for name, p in theirs.named_parameters() if "position" not in name]
    assert sum(counted) == sum(p.numel() for p in ours.parameters())
    (ids,) = decode_translate._generate(theirs, torch.randint(4, 19, (2, 5)))
    assert ids.size(1) == decode_translate._WRITTEN + 1
