"""Mistakes that no test on a CPU can notice: they are left out of a sample, and their number is said.

STATEMENTS are those that only a GPU reaches, by file and function: their first lines, or ALL. One that a test
passes all the same is in the sample. A statement around them, an ``if`` that asks for a GPU, is always in.

SIZES are constants that say how much is done at a time, or how much is worth a GPU's while: with any value
every result is the same, and only time and memory differ. That it is so has its own tests, with tiles of a
few pairs. The statements that read them are in the sample.
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
        "_collect": ALL,
        "_is_due": ALL,
        "_send": ALL,
        "_test": ("_collect()", "_send(rule, mask, version, name)"),
    },
    "attention/multihead.py": {
        "MultiheadAttention._infer": ALL,
        "MultiheadAttention._is_plain": ALL,
        "MultiheadAttention.forward": ("return self._infer(query",),
    },
    "decode/hypotheses.py": {"may_synchronise": ("return t %",)},
    "decode/replay.py": {
        "GraphReplay.__call__": (
            "key =",
            "if key not in",
            "if len(self._recordings)",
            "del self._recordings",
            "self._recordings[key] =",
            "recording = ",
            "recording.",
            "found = recording.found",
            "return Hypotheses(",
        ),
        "GraphReplay._recorded": ALL,
    },
    "look/engine.py": {
        "_answered_elsewhere": ("from sightline.look.kernels", "answers =", "for m, parts", "return [m for m")
    },
    "look/weights.py": {"usable_lse": ("if inputs.mask.added:", "return torch.where(lse.abs() < _EMPTY")},
    "train/processes.py": {"own_gpu": ALL, "join": ("torch.cuda.", 'backend = "cpu:gloo,')},
    "train/stepping.py": {
        "_seed": ("torch.cuda.",),
        "accelerator_for": ("os.environ[",),
    },
    "watch/batching.py": {
        "CallQueue._place_of": ("stream = int(", "self._streams[place] ="),
        "WaitingGroup.on_stream": ("return torch.cuda.stream(stream)",),
    },
}
SIZES = {
    "attention/additive.py": ("TILE",),
    "edit/edited_call.py": ("_ROWS",),
    "look/uniform.py": ("_TILE", "_TILE_ELSEWHERE"),
    "look/measures_more.py": ("_ROWS",),
    "look/threads.py": ("_FEW", "_AHEAD"),
    "look/weights.py": ("_TILE", "_SHARED_TILE"),
    "watch/batching.py": ("_MUCH", "_MANY"),
}


def only_there(site, source):
    """Whether a site is in one of these statements."""
    function = site.function[0] if site.function else ""
    starts = STATEMENTS.get(_path(site), {}).get(function, ())
    return any(_line(site, source).startswith(start) for start in starts)


def is_size(site, source):
    """Whether a site is in one of the constants that change no result."""
    names = () if site.function else SIZES.get(_path(site), ())
    return any(_line(site, source).startswith(f"{name} = ") for name in names)


def _path(site):
    return "/".join(site.path.split("/")[-2:])


def _line(site, source):
    return source.splitlines()[site.statement[0] - 1].strip()
