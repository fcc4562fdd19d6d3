import torch

from sightline.bench import decode, decode_translate
from sightline.bench.command import BENCHES
from sightline.bench.decode import cases, precision
from sightline.bench.timing import HostStopwatch, Repeats
from sightline.models.captioner import CaptionerConfig
from sightline.models.translator import TranslatorConfig

CPU = torch.device("cpu")
ONCE = Repeats(budget=1e-9, minimum=1, maximum=1)
TINY = CaptionerConfig(vocab_size=23, image_size=32, patch=16, d_model=16, n_heads=2, n_layers=2, d_ff=24)
TINY_TRANSLATOR = TranslatorConfig(
    source_vocab_size=23, vocab_size=23, shared=True, d_model=16, n_heads=2, n_layers=1, d_ff=24, norm="post"
)


def test_every_contestant_runs_and_both_loops_find_the_same():
    listed = cases(CPU, quick=True, config=TINY, steps=4)
    assert [case.name.partition("beside ")[2] for case in listed] == ["hugging face", "no cache"]
    for case in listed:
        outcome = case.measure(HostStopwatch(), ONCE)
        assert len(outcome.results) == 2, outcome.notes
        assert all(result.milliseconds > 0 for result in outcome.results)
        assert any("captions/s" in note for note in outcome.notes)
    ours, plain = (contestant.run()[0] for contestant in listed[1].timed.setup().contestants)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    (written,) = listed[0].timed.setup().contestants[1].run()
    assert written.shape == (8, 1 + 4)


def test_the_bars_and_the_names():
    listed = cases(CPU, quick=False)
    bars = {case.name: case.timed.bar for case in listed if " caption " in case.name}
    assert bars == {
        "cpu decode caption 64 images beam 5 beside hugging face": 2.0,
        "cpu decode caption 64 images beam 5 beside no cache": 5.0,
    }
    assert BENCHES["decode"] == (cases, decode_translate.cases)


def test_on_a_gpu_all_run_in_bfloat16_and_say_so(monkeypatch):
    assert precision(CPU) == torch.float32
    assert precision(torch.device("cuda")) == torch.bfloat16
    for module in (decode, decode_translate):
        monkeypatch.setattr(module, "precision", lambda _: torch.bfloat16)
    listed = cases(CPU, quick=True, config=TINY, steps=4)
    listed += decode_translate.cases(CPU, quick=True, config=TINY_TRANSLATOR)
    for case in listed:
        setup = case.timed.setup()
        assert "all in bfloat16" in setup.notes[0]
        found = {contestant.name: contestant.run()[0] for contestant in setup.contestants}
        assert found["sightline"].dtype == torch.float32  # the search adds up in full
        if "no cache" in found:
            torch.testing.assert_close(found["sightline"], found["no cache"], rtol=0.02, atol=0.05)
