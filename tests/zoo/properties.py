"""What holds of every model of the zoo: a property fails, or returns the facts that are written down of it.

Nothing here knows how Sightline works: models are watched by ``sl.watch``, and compared with ``truth.py``.
"""

import contextlib
import warnings

import pytest
import torch
from torch import Tensor

import sightline as sl
from tests.seams import batched_on, heard_by
from tests.zoo import runs, truth
from tests.zoo.compare import CLOSE, compared, magnitude, matched, put_together, truths
from tests.zoo.models import SEEN_IN_PART
from tests.zoo.runs import run, same, seeded, sights_of, tensors, watched
from tests.zoo.traces import Stopped, changes, last_called, run_and_stop, state_of, stop

__all__ = ["PROPERTIES", "applies", "facts_of"]

HALF = 2**-8  # to which weights are rounded in bfloat16
GRADIENT = 1e-3  # of the largest one: what float32 loses on the way back
PROMPT = 4  # tokens that are read at once, before the steps

PROPERTIES = {}


def property_of(*needs):
    """Enter a property into the table, with what an entry must be for it to mean something."""

    def enter(function):
        PROPERTIES[function.__name__] = function
        function.needs = needs
        return function

    return enter


def applies(holds, entry):
    """Whether a property means something for an entry."""
    return all(need(entry) for need in holds.needs)


def facts_of(entry, name):
    """Try a property of an entry: its facts."""
    with heard_by("a mode" if entry.compiles else "keys"), torch.set_grad_enabled(entry.trains):
        return PROPERTIES[name](entry)


def is_seen(entry):
    return not entry.unseen or entry.name in SEEN_IN_PART


def has_tokens(entry):
    """Whether its input is a text and nothing else, so that a padded batch of it can be made."""
    return entry.kind in {"text", "pair"}


def reads_step_by_step(entry):
    return entry.kind == "text"


def writes(entry):
    return entry.writes


def is_plain(entry):
    return not entry.compiles


def compiles(entry):
    return entry.compiles


def has_kernels(entry):
    return entry.attention == "sdpa"


# What is seen


@property_of()
def seen(entry):
    """Names, calls, shapes and sources; what is not seen is listed, with the reason and one warning."""
    model, inputs = entry.make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = watched(model, inputs)
    ours = [x for x in caught if "could not be read" in str(x.message) or "/sightline/" in x.filename]
    assert bool(len(found)) == is_seen(entry)
    assert bool(found.unseen()) == bool(entry.unseen), found.unseen()
    assert all(entry.unseen in reason for reason in found.unseen().values())
    assert [x.filename for x in ours] == [runs.__file__] * bool(entry.unseen), list(map(str, ours))
    return {
        "calls": {name: [described(x) for x in calls] for name, calls in found.items()},
        "unseen": found.unseen(),
    }


def described(sight):
    """Describe a sight in a few words: shape, how it was read, who gave the padding, what its keys are."""
    words = ["x".join(map(str, (*sight.lead, sight.t, sight.s))), sight.source]
    words += [f"padding by {sight.padding}"] if sight.padding else []
    words += ["masked"] if sight.is_masked else []
    has_images = any(token.startswith("image[") for text in sight.tokens for token in text)
    return ", ".join([*words, *(["images"] if has_images else [])])


@property_of()
def same_bits(entry):
    """Outputs, all gradients and the random numbers used are those of a run that is not watched."""
    model, inputs = entry.make()
    n_tensors = 0
    for train in (False, True)[: 1 + entry.trains]:
        model.train(train)
        blind, after = run(model, inputs), torch.get_rng_state()
        assert same(run(model, inputs), blind), "the model itself is not the same twice"
        for options in ({}, {"keep": True}):
            with sl.watch(model, **options) as found:
                begun = torch.get_rng_state()
                again = run(model, inputs)
            assert same(again, blind), (train, options)
            assert torch.equal(begun, after), "the block has drawn random numbers"
            assert torch.equal(torch.get_rng_state(), after), (train, options)
            assert len(found) or not is_seen(entry)
        n_tensors += sum(x is not None for x in blind)
    assert n_tensors
    return {"tensors": n_tensors}


# The weights


@property_of(is_seen)
def eagers_weights(entry):
    """Statistics, and the rows where q and k are kept, are those of eager attention."""
    model, inputs = entry.make()
    return compared(entry, model, inputs, CLOSE)


@property_of(is_seen, has_tokens)
def padded(entry):
    """The same in a padded batch: the mask that the model is called with says which queries count."""
    facts = {}
    for side in ("right", "left"):
        model, inputs = entry.make()
        ids = inputs["input_ids"]
        real = torch.arange(ids.size(1)) < torch.tensor([[ids.size(1)], [ids.size(1) - 3]])
        real = real if side == "right" else real.flip(-1)
        inputs |= {"attention_mask": real.long()}
        blind = run(model, inputs)
        with sl.watch(model):
            assert same(run(model, inputs), blind)
        facts[side] = compared(entry, model, inputs, CLOSE, real)
        found = sights_of(watched(model, inputs))
        own = [x for x in found if x.t == ids.size(1)]
        facts[side] |= {
            "padding": sorted({x.padding for x in own}),
            "padded": [int(x.is_padding.sum()) for x in found],
        }
    return facts


@property_of(is_seen)
def half(entry):
    """The same in bfloat16, where eager attention rounds its weights and a kernel does not."""
    model, inputs = entry.make()
    model = model.bfloat16()
    inputs = {
        k: x.bfloat16() if isinstance(x, Tensor) and x.is_floating_point() else x for k, x in inputs.items()
    }
    truth.set_attention(model, entry.attention)
    try:
        with torch.no_grad():
            model(**inputs)
    except (RuntimeError, ValueError) as error:
        return {"cannot": type(error).__name__}
    return compared(entry, model, inputs, {"rtol": 2 * HALF, "atol": 2 * HALF * 11})


@property_of(is_seen, has_kernels)
def graph_kept(entry):
    """With ``grad=True`` the output stays as it is, and a loss on peaks has eager attention's gradients."""
    model, inputs = entry.make()
    blind = run(model, inputs)
    with sl.watch(model, grad=True):
        assert same(run(model, inputs), blind)
    seeded()
    with sl.watch(model, grad=True) as found:
        model(**inputs)
    sights, weights = sights_of(found), truths(entry, model, inputs).get("returned")
    pairs = matched(sights, weights or [])
    if pairs is None or not all(sight.source == "kernel" for sight in sights):
        return {"cannot": "it returns no weights" if pairs is None else "some weights are computed by hand"}
    pairs = matched(sights, truth.returned(model, inputs))
    both = [(sight, x) for sight, x in zip(sights, pairs, strict=True) if x is not None]
    mine = gradients(model, [sight.peak for sight, _ in both])
    expected = gradients(model, [x.amax(-1) for _, x in both])
    assert expected.abs().max() > 0
    error = (mine - expected).abs().max() / expected.abs().max()
    assert error < GRADIENT
    return {"sights": len(both), "error": magnitude(error.item())}


def gradients(model, values):
    """Every gradient of a sum of squares, as one vector."""
    parameters = [x for x in model.parameters() if x.requires_grad]
    loss = sum(x.square().sum() for x in values)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, found, strict=True)]
    )


# Calls that wait for each other


@property_of(is_seen)
def batched(entry):
    """Calls that are measured together show what they show one by one, and the output stays as it is."""
    model, inputs = entry.make()
    blind = run(model, inputs)
    alone = sights_of(watched(model, inputs))
    with batched_on("cpu") as sizes:
        together = watched(model, inputs)
        with sl.watch(model):
            assert same(run(model, inputs), blind)
    assert len(alone) == len(sights_of(together)) > 0
    for one, other in zip(alone, sights_of(together), strict=True):
        assert (one.name, one.t, one.s, one.lead, one.source) == (
            other.name,
            other.t,
            other.s,
            other.lead,
            other.source,
        )
        assert one.tokens == other.tokens
        assert one.padding == other.padding
        for name in ("received", "entropy", "peak", "lse"):
            mine, its = getattr(one, name), getattr(other, name)
            torch.testing.assert_close(its, mine, **CLOSE, equal_nan=True, msg=f"{one.name}, {name}")
    return {"calls": len(alone), "waited": sum(sizes)}


@property_of(compiles)
def compiled_once(entry):
    """What is compiled stays so, and is not compiled again in a block or after it."""
    model, inputs = entry.make()
    torch._dynamo.reset()
    with torch.no_grad():
        model(**inputs)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        for options in ({}, {"keep": True}):
            with sl.watch(model, **options) as found:
                model(**inputs)
            assert len(found) == 2
        model(**inputs)
    assert graphs > 0
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    return {}


@property_of(is_plain)
def heard_by_a_mode(entry):
    """Where torch.compile has been in use another listener hears the same, and changes nothing either."""
    model, inputs = entry.make()
    by_keys = watched(model, inputs, keep=True)
    with heard_by("a mode"):
        by_a_mode = watched(model, inputs, keep=True)
    model.train(entry.trains)
    blind = run(model, inputs)
    with heard_by("a mode"), sl.watch(model):
        assert same(run(model, inputs), blind)
    assert by_a_mode.unseen() == by_keys.unseen()
    assert by_a_mode.names() == by_keys.names()
    for one, other in zip(sights_of(by_keys), sights_of(by_a_mode), strict=True):
        assert described(one) == described(other)
        torch.testing.assert_close(
            other.rows(range(other.t)), one.rows(range(one.t)), equal_nan=True, **CLOSE
        )
    return {}


# Steps


@property_of(is_seen, reads_step_by_step)
def cached(entry):
    """Single steps with a cache, put together, are the whole text at once."""
    model, inputs = entry.make()
    ids = inputs["input_ids"]
    with torch.no_grad():
        whole = next(tensors(model(**inputs)))
        try:
            cache = model(ids[:, :PROMPT], use_cache=True).get("past_key_values")
        except TypeError:
            cache = None
        if cache is None:
            return {"cannot": "it keeps no cache"}
        with sl.watch(model, keep=True) as steps:
            out = model(ids[:, :PROMPT], use_cache=True)
            for i in range(PROMPT, ids.size(1)):
                out = model(ids[:, i : i + 1], use_cache=True, past_key_values=out["past_key_values"])
    if (next(tensors(out)) - whole[:, -1:]).abs().max() > truth.SAME * whole.abs().max():
        return {"cannot": "it computes another output step by step"}
    return {"error": put_together(steps, watched(model, inputs, keep=True))}


@property_of(writes)
def generated(entry):
    """The steps of ``generate``, put together, are the whole text at once; what it writes stays the same."""
    model, inputs = entry.make()
    start = inputs["input_ids"][:1]
    length = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    settings = length | {"attention_mask": torch.ones_like(start)}
    blind = model.generate(start, **settings)
    with sl.watch(model, keep=True) as steps:
        out = model.generate(start, **settings)
    assert torch.equal(out, blind)
    both = {"input_ids": start, "decoder_input_ids": out[:, :-1]}
    text = both if model.config.is_encoder_decoder else {"input_ids": out[:, :-1]}
    calls = {name: [described(sight) for sight in x] for name, x in steps.items()}
    return {"calls": calls, "error": put_together(steps, watched(model, text, keep=True))}


# Nothing is left


@property_of()
def no_trace(entry):
    """After a block, and after an exception in it, the model and torch are as they were."""
    model, inputs = entry.make()
    expected = run(model, inputs)
    before, last = state_of(model), last_called(model, inputs)
    with sl.watch(model):
        run(model, inputs)
    assert changes(before, state_of(model)) == []
    for where in ("in the block", last):
        with contextlib.ExitStack() as undo:
            if where is last:
                undo.callback(last.register_forward_pre_hook(stop).remove)
            with pytest.raises(Stopped), sl.watch(model):
                run_and_stop(model, inputs)
        assert changes(before, state_of(model)) == []
    assert same(run(model, inputs), expected)
    return {}
