import pytest
import torch

from sightline.bench import attention, linear, memory, modules
from sightline.bench.attention import cases
from sightline.bench.context import without_fast_path
from sightline.bench.sizes import Sizes, bar
from sightline.bench.timing import HostStopwatch, Repeats

CPU = torch.device("cpu")
ONCE = Repeats(budget=1e-9, minimum=1, maximum=1)
TINY = Sizes(device=CPU, lengths=(5,), widths=(3,), n_heads=2, d_model=6, tokens=14, memory_length=None)


def test_every_case_runs_every_contestant_and_agrees_with_float64():
    listed = cases(CPU, sizes=TINY)
    assert len({case.name for case in listed}) == len(listed) == 4 + 7 + 5
    for case in listed:
        outcome = case.measure(HostStopwatch(), ONCE)
        expected = ["sightline", "torch"] + ["torch, fast path off"] * (" eval " in case.name)
        assert [result.contestant for result in outcome.results] == expected, case.name
        for result in outcome.results:
            assert result.milliseconds > 0
            if "dropout" in case.name:
                assert result.error is None
            else:
                assert result.error < 1e-5, case.name
        assert outcome.notes == (("no float64 check: dropout is random",) if "dropout" in case.name else ())


def test_a_wrong_answer_of_ours_is_seen(monkeypatch):
    right = attention.sl.attention
    monkeypatch.setattr(attention.sl, "attention", lambda *inputs: 1.001 * right(*inputs))
    case = next(c for c in cases(CPU, sizes=TINY) if "forward+backward T=5 D=3 causal" in c.name)
    outcome = case.measure(HostStopwatch(), ONCE)
    assert outcome.results[0].error == pytest.approx(1e-3, rel=0.1)
    assert outcome.results[1].error < 1e-6
    assert "inexact" in outcome.faults


def test_both_modules_have_the_same_weights():
    use = modules.ModuleUse(module="encoder-layer", training=True, causal=True)
    ours, theirs = modules.compare_module(TINY, 7, use).contestants
    for mine, other in zip(ours.run(), theirs.run(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_too_large_says_so_and_leaves_out_only_the_check(monkeypatch):
    sizes = Sizes(device=CPU, lengths=(7,), widths=(3,), n_heads=2, d_model=6, checked_pairs=97)
    for case in cases(CPU, sizes=sizes):
        if "dropout" not in case.name and "memory" not in case.name:
            setup = case.setup()
            assert setup.exact is None
            assert setup.notes == ("too large for a float64 check",)
            assert len(setup.contestants) >= 2
    monkeypatch.setattr("sightline.bench.sizes.MOST_WEIGHT_BYTES", 100)
    setup = modules.compare_module(
        sizes, 7, modules.ModuleUse(module="multihead", training=True, weights=True)
    )
    assert [c.name for c in setup.contestants] == ["sightline"]
    assert setup.notes[0].startswith("torch left out")


def test_sizes_of_the_devices():
    cpu = Sizes.of(CPU, quick=False)
    assert (cpu.lengths, cpu.widths, cpu.dtype) == ((128, 1024, 4096), (64,), torch.float32)
    cuda = Sizes.of(torch.device("cuda"), quick=False)
    assert (cuda.lengths[-1], cuda.widths, cuda.dtype) == (16384, (64, 128), torch.bfloat16)
    assert [cuda.batch(t) for t in cuda.lengths] == [16, 16, 4, 1]
    assert Sizes.of(CPU, quick=True).lengths == (128, 1024)
    assert [bar(t) for t in (128, 1024, 4096)] == [0.9, 0.97, 0.97]


def test_cases_of_a_gpu_can_be_listed_without_one():
    names = [case.name for case in cases(torch.device("cuda"))]
    assert len(names) == 4 * (2 * 4 + 12)
    assert "cuda attention forward+backward T=16384 D=128 causal" in names
    assert "cuda multihead eval T=16384 weights" in names


def test_fast_path_comes_back_after_an_exception():
    assert torch.backends.mha.get_fastpath_enabled()

    def fail_inside():
        with without_fast_path():
            assert not torch.backends.mha.get_fastpath_enabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert torch.backends.mha.get_fastpath_enabled()


def test_memory_cases_name_the_matrix_and_the_bar(monkeypatch):
    asked = []
    monkeypatch.setattr(
        memory, "fresh_peak_bytes", lambda target, arguments: asked.append((target, arguments)) or 1234
    )
    listed = linear.cases(Sizes(device=CPU, memory_length=16384))
    assert {case.memory_bar for case in listed} == {200_000_000}
    assert all("1074 MB" in case.notes[0] for case in listed)
    for case in listed:
        outcome = case.measure(HostStopwatch(), ONCE)
        names = ["sightline"] if "padded" in case.name else ["sightline", "torch"]
        assert [result.contestant for result in outcome.results] == names
        assert all(result.peak_bytes == 1234 for result in outcome.results)
    for target, arguments in asked:
        ready = getattr(linear, target.split(":")[1])
        assert callable(ready(**arguments | {"length": 67}))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_what_the_memory_cases_call(padded, backward):
    got = linear.ours(67, backward=backward, padded=padded)()
    if not padded:
        torch.testing.assert_close(got, linear.theirs(67, backward=backward)())
