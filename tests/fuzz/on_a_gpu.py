"""Statements that only a GPU reaches: mistakes in them are left out of a sample, and their number is said.

By file and function: the first lines of such statements, or ALL. One that a test passes all the same is in
the sample. A statement around them, an ``if`` that asks for a GPU, is always in.
"""

ALL = ("",)

STATEMENTS = {
    "attention/attend.py": {
        "_additive": ALL,
        "attention": (
            "output = _additive(score, q, k, v, mask, 1.0 if scale is None else scale)",
            "if output is not None:",
            "return output",
        ),
        "_fused": ("return call(q, k, v, causal_lower_right(t, s))",),
        "_sdpa": (
            "k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))",
            "grouped = False",
            "mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)",
        ),
    },
    "attention/averaged.py": {
        "_has_triton": ALL,
        "attention_with_average": ("return attention(q, k, v), average_weights(q, k)",),
        "_over_heads": ("ones = weights.new_ones", "return (ones @ weights"),
    },
    "attention/mask_values.py": {
        "_send": ALL,
        "_test": ("_collect()", "site = CallSite(name) if rule.refused", "_send(rule, mask, version, site)"),
    },
    "attention/multihead.py": {
        "MultiheadAttention._infer": ALL,
        "MultiheadAttention._is_plain": ALL,
        "MultiheadAttention.forward": ("return self._infer(query",),
    },
}


def only_there(site, source):
    """Whether a site is in one of these statements."""
    path = "/".join(site.path.split("/")[-2:])
    function = site.function[0] if site.function else ""
    line = source.splitlines()[site.statement[0] - 1].strip()
    return any(line.startswith(start) for start in STATEMENTS.get(path, {}).get(function, ()))
