# ruff: noqa: E501 (lines of a page)
"""Write docs/lookup/models_watched.md: which models `sl.watch` sees, how, and how exactly."""

import json
from typing import Any

from workshop import ROOT

ZOO = ROOT / "tests" / "golden" / "zoo.json"
HEAD = """# Models that were watched

Written by `python -m workshop.pages models_watched` from what the tests of `tests/zoo` hold: random weights, two narrow layers, 2 x 11
tokens, on a CPU. Every model gives the same output and the same gradients, bit for bit, in training and in evaluation, watched and not;
nothing is left in it after the block, or after an exception in it. Reformer and RWKV are run without gradients.

*Calls* are those of attention in one run; *read off* says how: off a kernel's own q, k and log-sum-exp, off FlexAttention, or off the
weights that the model computed by hand. *Error* bounds the largest difference of any weight, and of entropy, received and peak, from
the weights that the model returns with eager attention, or from a softmax in float64 over the same q and k. *Padded* is the same in a
batch with padding on the right and on the left. *Steps* compares a prompt and single tokens, put together, with all tokens at once;
*writing* means `generate`. *bfloat16* compares a kernel with float64 over the same q and k; eager attention rounds its scores and
weights to bfloat16, which a kernel does not. "-" means that there is nothing to compare: no text, no cache, no attention that is seen.

| model | attention | calls | not seen | read off | error | padded | steps | bfloat16 |
|---|---|---|---|---|---|---|---|---|
"""
Facts = dict[str, Any]


def models_watched() -> str:
    """Return the page."""
    zoo: dict[str, Facts] = json.loads(ZOO.read_text(encoding="utf-8"))
    page = HEAD + "".join(row(key, facts) for key, facts in zoo.items())
    reasons: dict[str, dict[str, None]] = {}
    for key, facts in zoo.items():
        for reason in facts["seen"]["unseen"].values():
            reasons.setdefault(reason, {})[key.rpartition(", ")[0]] = None
    notes = [f"- {', '.join(names)}: {reason}." for reason, names in reasons.items()]
    return page + "\nNot seen:\n\n" + "\n".join(notes) + "\n"


def row(key: str, facts: Facts) -> str:
    """Return the line of an entry."""
    name, _, attention = key.rpartition(", ")
    calls = [sight.split(", ") for sights in facts["seen"]["calls"].values() for sight in sights]
    sources = sorted({words[1] for words in calls})
    if any("images" in words for words in calls):
        sources.append("images by name")
    cells = [
        name,
        attention,
        str(len(calls)),
        str(len(facts["seen"]["unseen"]) or ""),
        ", ".join(sources) or "-",
        error(facts.get("eagers_weights")),
        error(facts.get("padded")),
        error([facts.get("cached"), facts.get("generated")]),
        error(facts.get("half")),
    ]
    return f"| {' | '.join(cells)} |\n"


def error(facts: Any) -> str:
    """Return the largest error among some facts, those of the closest oracle where there are several."""
    found = list(errors(facts))
    return f"{max(found):.0e}" if found else "-"


def errors(facts: Any) -> list[float]:
    """Return the errors among some facts."""
    if isinstance(facts, list):
        return [x for inner in facts for x in errors(inner)]
    if not isinstance(facts, dict):
        return []
    if "error" in facts:
        return [facts["error"]]
    oracles = [facts[name]["error"] for name in ("overheard", "returned", "formula") if name in facts]
    return [min(oracles)] if oracles else [x for inner in facts.values() for x in errors(inner)]
