"""The score functions of the lecture notes, as formulas in float64."""

import torch

import sightline as sl

SCORES = ("dot", "scaled_dot", "cosine", "general", "low_rank", "additive")


def score_of(name, d, dtype=torch.float32):
    """What ``score=`` takes: a module where it has parameters, else its name."""
    built = {
        "general": lambda: sl.scores.General(d, d),
        "low_rank": lambda: sl.scores.LowRank(d, d, 2),
        "additive": lambda: sl.scores.Additive(d, d, 5),
    }
    return built[name]().to(dtype) if name in built else name


def plain_scores(name, score, q, k):
    """The same pair by pair: q, k (..., T, D), (..., S, D) -> (..., T, S)."""
    dot = "...td,...sd->...ts"
    if name in ("dot", "scaled_dot"):
        return torch.einsum(dot, q, k) * (q.size(-1) ** -0.5 if name == "scaled_dot" else 1.0)
    if name == "cosine":
        return torch.einsum(dot, q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True))
    p = {n: x.double() for n, x in score.named_parameters()}
    if name == "general":
        return torch.einsum("...td,de,...se->...ts", q, p["W"], k)
    if name == "low_rank":
        return torch.einsum("...td,rd,re,...se->...ts", q, p["U"], p["V"], k)
    hidden = (q @ p["V"].mT).unsqueeze(-2) + (k @ p["W"].mT).unsqueeze(-3)
    return hidden.tanh() @ p["v"]
