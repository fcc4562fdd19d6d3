"""What is handed out, that keys pass and agree with torch, and that every known mistake gets its hint."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F

import sightline as sl
from sightline.exercises import EXERCISES, file_of, grading
from sightline.exercises.comparing import difference, is_same
from sightline.exercises.sandbox import Outcome, run_file

NUMBERS = sorted(EXERCISES)


@pytest.fixture(scope="module", autouse=True)
def _no_trace():
    before = torch.random.get_rng_state()
    yield
    torch.random.set_rng_state(before)


def test_there_is_one_for_each_chapter():
    assert list(range(1, 15)) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_handed_out_compiles_and_has_no_solution_in_it(number):
    text = file_of(number)
    names: dict = {}
    exec(compile(text, "handed_out.py", "exec"), names)  # noqa: S102
    key = inspect.getsource(EXERCISES[number].key)
    hidden = [part.split("# end")[0] for part in key.split("# solution\n")[1:]]
    assert hidden
    assert not [
        line for part in hidden for line in part.splitlines() if len(line.strip()) > 20 and line in text
    ]
    assert text.count("raise NotImplementedError  # your code here") == len(hidden)
    assert {probe.name for probe in EXERCISES[number].probes()} <= set(names)


def test_every_key_passes_in_the_child():
    """All keys as one file in one child: names that two exercises share are graded by the later key."""
    for numbers in ((1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14), (7,)):
        source = "\n".join(inspect.getsource(EXERCISES[n].key) for n in numbers)
        probes = [(EXERCISES[n], probe) for n in numbers for probe in EXERCISES[n].probes()]
        outcome = run_file(source, "key.py", [probe for _, probe in probes], seconds=120)
        for n, (exercise, probe) in enumerate(probes):
            assert grading._judged(exercise, probe, outcome, n, source, 1) == ("", ""), probe.name


@pytest.mark.parametrize("number", NUMBERS)
def test_every_mistake_fails_and_is_told_by_its_hint(number):
    """What a mistake answers is wrong for some probe, and the hint of the first such probe is its own."""
    exercise = EXERCISES[number]
    for mistake in exercise.mistakes:
        hints = []
        for probe in exercise.probes():
            if probe.name not in mistake.names:
                continue
            try:
                wrong = grading._perform(exercise.names | dict(mistake.names), probe)
            except (OverflowError, RuntimeError, ZeroDivisionError):
                continue
            right = grading._perform(exercise.names, probe)
            if difference(right, wrong, exercise.parts.get(probe.name, ()), exercise.tolerance):
                hints.append(grading._hint(exercise, probe, wrong))
        assert hints, mistake.hint
        assert mistake.hint in hints, (mistake.hint, hints)


# The keys against torch and the package: the figures that the documents print are doctests of the keys.


def answers(number):
    exercise = EXERCISES[number]
    return [(probe, grading._perform(exercise.names, probe)) for probe in exercise.probes()]


def test_key_1_against_torch():
    for probe, answer in answers(1):
        weights = torch.tensor(probe.args[0]).softmax(0)
        expected = weights if probe.name == "softmax" else weights @ torch.tensor(probe.args[1])
        assert answer == pytest.approx(expected.tolist(), abs=1e-6)


def test_key_2_against_the_package():
    for probe, answer in answers(2):
        q, k, *rest = probe.args
        match probe.name:
            case "dot":
                expected = sl.scores.Dot()(q, k)
            case "cosine":
                expected = F.cosine_similarity(q[:, None], k[None], dim=-1)
            case "general":
                expected = torch.einsum("td,de,se->ts", q, rest[0], k)
            case "additive":
                w_q, w_k, v = rest
                expected = torch.stack(
                    [torch.stack([v @ torch.tanh(w_q @ a + w_k @ b) for b in k]) for a in q]
                )
        torch.testing.assert_close(answer, expected)


def test_keys_3_and_4_against_the_reference():
    for number in (3, 4):
        for probe, answer in answers(number):
            if isinstance(answer, tuple):
                expected = sl.reference.scaled_dot_product_attention(*probe.args)
                for one, other in zip(answer, expected, strict=True):
                    torch.testing.assert_close(one, other)
    assert is_same(answers(4)[1][1], sl.masks.causal().dense(5, 5), 0)


def test_key_5_against_the_package():
    for probe, answer in answers(5):
        if probe.name == "PositionalEncoding":
            torch.testing.assert_close(answer, sl.positions.sinusoidal(probe.init[1], probe.init[0]))
        if probe.name == "rotation":
            omega, phi = probe.args
            for t in (0.0, 1.7, 13.0):
                here, there = omega * t, omega * (t + phi)
                moved = answer.double() @ torch.tensor([math.sin(here), math.cos(here)], dtype=torch.float64)
                assert moved.tolist() == pytest.approx([math.sin(there), math.cos(there)], abs=1e-6)


def test_keys_6_and_7_against_the_package_and_torch():
    for number, name in ((6, "SelfAttention"), (7, "MultiHeadSelfAttention")):
        for probe, answer in answers(number):
            if probe.name == name:
                torch.manual_seed(probe.seed)
                x = torch.rand(*probe.draw) if probe.draw else probe.args[0]
                torch.testing.assert_close(answer, getattr(sl.nn, name)(*probe.init)(x).detach())
    probe, (output, weights) = answers(7)[-1]
    q, k, v, w_in, w_out = probe.args
    layer = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
    layer.load_state_dict({"in_proj_weight": w_in, "out_proj.weight": w_out})
    expected, expected_weights = layer(q[None], k[None], v[None])
    torch.testing.assert_close(output, expected[0].detach())
    torch.testing.assert_close(weights, expected_weights[0].detach())


def test_key_8_against_torch():
    for probe, answer in answers(8):
        if probe.name == "encoder_layer":
            x, weights, heads = probe.args
            layer = torch.nn.TransformerEncoderLayer(6, heads, 11, dropout=0.0, batch_first=True)
            layer.load_state_dict(weights)
            torch.testing.assert_close(answer, layer(x[None])[0].detach())
        else:
            layer = torch.nn.TransformerEncoderLayer(probe.args[0], 1, probe.args[1], batch_first=True)
            assert answer == sum(x.numel() for x in layer.parameters())


def test_keys_9_and_14_against_torch():
    for probe, answer in answers(9):
        if probe.name == "smoothed_cross_entropy":
            logits, target, smoothing = probe.args
            torch.testing.assert_close(answer, F.cross_entropy(logits, target, label_smoothing=smoothing))
    for probe, answer in answers(14):
        logits, tokens, *hidden = probe.args
        logits, tokens = (logits[hidden[0]], tokens[hidden[0]]) if hidden else (logits[:-1], tokens[1:])
        torch.testing.assert_close(answer, F.cross_entropy(logits, tokens))


def test_key_10_finds_what_trying_everything_finds():
    def best(table, last, end, n):
        """The likeliest way from a token to the end in at most n steps, and its log-probability."""
        if last == end or n == 0:
            return (0.0 if last == end else -math.inf), []
        ways = [(table[last][x] + log, [x, *rest])
                for x in range(len(table)) for log, rest in [best(table, x, end, n - 1)]]  # fmt: skip
        return max(ways)

    for probe, answer in answers(10):
        table, start, end, n, *width = probe.args
        if width and width[0] >= 2:
            assert answer == best(table.tolist(), start, end, min(n, 4))[1]


def test_key_13_against_the_package():
    from sightline.models.vit_parts import patches

    for probe, answer in answers(13):
        torch.testing.assert_close(answer, patches(probe.args[0][None], probe.args[1])[0].flatten(0, 1))
    assert answer.shape == (196, 768)


def test_an_outcome_without_lines_is_never_a_pass():
    exercise = EXERCISES[1]
    problem, hint = grading._judged(exercise, exercise.probes()[0], Outcome([], "", False), 0, "", 1)
    assert "ended its process" in problem
    assert hint


@pytest.mark.parametrize(
    ("expected", "answer", "said"),
    [
        (
            torch.ones(2, 2).tril() > 0,
            torch.ones(2, 2).tril(),
            "expected True and False, got a tensor of float32",
        ),
        (
            torch.zeros(2, 3),
            torch.zeros(3, 2),
            "expected the shape (2, 3), got (3, 2); the last two are swapped",
        ),
        (torch.zeros(2, 3), torch.zeros(4), "expected the shape (2, 3), got (4,)"),
        (torch.zeros(2), torch.tensor([0.0, math.nan]), "it has NaN"),
        (torch.zeros(5, 5, 5), torch.ones(5, 5, 5), "expected 0.0 at [0, 0, 0], got 1.0"),
        (torch.zeros(2), None, "got None (is there a return?)"),
        ((torch.zeros(2), 1.0), torch.zeros(2), "expected (output, weights), got tensor([0.0, 0.0])"),
        ((torch.zeros(2), 1.0), (torch.zeros(2), 2.0), "weights: expected 1.0, got 2.0"),
        ([1, 2], [1, 2, 3], "expected [1, 2], got [1, 2, 3]"),
        (3, 3.5, "expected 3, got 3.5"),
        (0.5, "0.5", "expected 0.5, got '0.5'"),
    ],
)
def test_a_difference_is_said(expected, answer, said):
    assert said in difference(expected, answer, ("output", "weights"), 1e-4)
    assert difference(expected, expected, ("output", "weights"), 1e-4) == ""


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        ("OverflowError", "math range error", "subtract the largest score"),
        (
            "RuntimeError",
            "The size of tensor a (3) must match the size of tensor b (7)",
            "the shapes do not fit",
        ),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried", "more memory"),
        ("NotImplementedError", "", "in place of that line"),
        ("SystemExit", "0", "a function returns its result"),
        ("ZeroDivisionError", "division by zero", "a sum of scores can be 0"),
        ("RuntimeError", "Expected size for first two dimensions of batch2 tensor", "the shapes do not fit"),
        ("TypeError", "can't multiply sequence by non-int of type 'float'", "number by number"),
        ("TypeError", "~ (operator.invert) is only implemented on integer", "mask == 0"),
        ("KeyError", "'quince'", ""),
    ],
)
def test_an_exception_is_told_with_its_line(error, message, hint):
    line = {"error": error, "message": message, "line": 2}
    problem, told = grading._raised(line, "softmax([1.0])", "first\n  second line\n")
    assert problem.endswith("at line 2: second line")
    assert hint in told
    assert (told == "") == (hint == "")
