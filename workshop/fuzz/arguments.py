"""Arguments that nobody meant: every argument of every public function, replaced by wrong values.

A call must answer, or refuse in a sentence of the package's own: a ``raise`` in its code, whose words name
the rule and the value. An error that Python or torch raises of itself is a failure; so is a hang, a
dead process, and an answer to a value that the annotation excludes, which beartype judges: it has no part in
the checks.
"""

import dis
import itertools
import json
import os
import re
import resource
import signal
import time
import traceback
import types
import typing
import warnings
from pathlib import Path

import numpy as np
import torch

import sightline as sl
from workshop.fuzz.public import calls
from workshop.fuzz.report import Report

SECONDS = 20  # of a processor, for one call
MEGABYTES = 2000
TOGETHER = 60  # cases of one child
OURS = Path(sl.__file__).parent
KINDS = (ValueError, TypeError, OSError, ImportError)
FOREIGN = re.compile(
    r"Expected |expected (Tensor|scalar|type)|object is not|has no attribute|NoneType object|"
    r"not implemented for"
)
NUMBERS = (
    *(True, False, 0, 1, -1, -7, 3, 2**31, 2**63, 10**30, np.int64(2), np.float32(0.5)),
    *(0.0, 0.5, -0.5, 2.0, 1e308, 1e-320, float("nan"), float("inf"), float("-inf"), 1j),
)
TEXTS = (
    "",
    "x",
    "nowhere/x.png",
    "\x00",
    "\udc80",
    "\ud800",
    b"x",
    "x" * 5000,
    Path("nowhere"),
    Path("/dev/null/x"),
)
THINGS = (
    *(
        None,
        object(),
        int,
        len,
        sl,
        Ellipsis,
        slice(None, None, -1),
        range(3),
        range(0),
        set(),
        frozenset({1}),
    ),
    *(
        [],
        [None],
        [1],
        [-1],
        ["a"],
        [[1, 2], [3]],
        [1.5],
        [10**30],
        (),
        (1, 2),
        (2, 1),
        (0, 0),
        (-1, 2),
        ("a", "b"),
        (1,),
        (1, 2, 3),
    ),
    *({}, {"a": 1}, {1: 2}, {"a": None}, {"a": [0]}, {"a": torch.zeros(2)}, iter([1]), (x for x in ())),
    *(
        np.zeros(3),
        np.zeros((2, 3)),
        np.array("x"),
        np.array([None]),
        torch.float32,
        torch.device("meta"),
        torch.nn.Identity(),
    ),
)
TENSORS = (
    *(
        torch.tensor(1),
        torch.tensor(1.5),
        torch.zeros(0),
        torch.zeros(3),
        torch.zeros(2, 3),
        torch.zeros(2, 0, 4),
    ),
    *(
        torch.ones(5, 7, dtype=torch.int64),
        torch.ones(5, 7, dtype=torch.bool),
        torch.zeros(2, 3, device="meta"),
    ),
    *(
        torch.zeros(2, 3, dtype=torch.complex64),
        torch.zeros(2, 3).to(torch.float8_e4m3fn),
        torch.full((2, 3), torch.nan),
    ),
    torch.zeros(2, 3).to_sparse(),
)
ONCE = object()  # stands for an iterator over what is valid
CHANGES = {
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "float8": lambda x: x.float().to(torch.float8_e4m3fn),
    "long": lambda x: x.long(),
    "bool": lambda x: x.bool(),
    "complex": lambda x: x.to(torch.complex64),
    "meta": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse(),
    "numpy": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
    "first": lambda x: x[0],
    "deeper": lambda x: x[None],
    "nan": lambda x: x.float() * torch.nan,
    "inf": lambda x: x.float() + torch.inf,
    "negative": lambda x: -x.float(),
    "narrow": lambda x: x[..., :-1],
    "short": lambda x: x[:-1],
    "no width": lambda x: x[..., :0],
    "no items": lambda x: x[:0],
    "graph": lambda x: x.float().clone().requires_grad_(),
    "huge": lambda x: x.float() * 1e38,
    "expanded": lambda x: x[:1].expand(3, *x.shape[1:]),
    "transposed": lambda x: x.mT,
}


def fuzz(cases, place):
    """Call, once for each case: every wrong value of every argument in a random order, then two at a time."""
    report = Report(cases.name, cases.seed)
    here = Path(place) / "arguments"
    here.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = calls(here)
        known = [
            (i, ((name, label),))
            for i, call in enumerate(table)
            for name, value in call.arguments.items()
            for label in _values(value)
        ]
        cases.chance("order").shuffle(known)
        while numbers := list(itertools.islice(cases, TOGETHER)):
            some = [known[n] if n < len(known) else _two(chance, table) for n, chance in numbers]
            for case, outcome, faults in _in_child(table, some):
                report.add(case, outcome, faults)
    return report


def _two(chance, table):
    """A case with two wrong arguments."""
    i = chance.randrange(len(table))
    names = chance.sample(list(table[i].arguments), min(2, len(table[i].arguments)))
    return i, tuple((name, chance.choice(list(_values(table[i].arguments[name])))) for name in names)


def _values(valid):
    """Wrong values for an argument, by what to call them."""
    found = {f"{value!r:.60}": value for value in (*NUMBERS, *TEXTS, *THINGS)}
    found |= {f"tensor {tuple(x.shape)} {x.dtype} {x.device} {i}": x for i, x in enumerate(TENSORS)}
    if isinstance(valid, torch.Tensor):
        for name, change in CHANGES.items():
            try:
                found[name] = change(valid)
            except (RuntimeError, TypeError, IndexError):
                continue
    elif isinstance(valid, str):
        found |= {"upper": valid.upper(), "more": valid + "x", "bytes": valid.encode(), "listed": [valid]}
    elif isinstance(valid, int) and not isinstance(valid, bool):
        found |= {
            "minus": -valid,
            "many": 10**12,
            "as float": float(valid),
            "as text": str(valid),
            "scalar": torch.tensor(valid),
        }
        found |= {"half more": valid + 0.5, "listed": [valid], "next": valid + 1}
    elif isinstance(valid, list | tuple):
        kind = type(valid)
        found |= {
            "none of it": kind(),
            "twice": valid + valid,
            "with None": kind([*valid, None]),
            "nested": kind([valid]),
        }
        found |= {
            "longer": kind([*valid, *valid[:1]]),
            "shorter": valid[:-1],
            "as text": str(valid),
            "by name": dict(enumerate(valid)),
        }
        found |= {"once through": ONCE}
    elif isinstance(valid, dict):
        found |= {
            "none of it": {},
            "keys": list(valid),
            "with None": {**valid, "n": None},
            "by number": dict(enumerate(valid.values())),
        }
    return found


def _in_child(table, cases):
    """Run cases in a forked child, bounded in time and memory; if it dies, the rest in the next."""
    while cases:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _child(table, cases, write)
        os.close(write)
        n = 0
        with os.fdopen(read) as answers:
            for line in answers:
                n += 1
                yield json.loads(line)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if n < len(cases):
            yield (
                _shown(table, cases[n]),
                "dead",
                [f"the process died, {status}" if status != -signal.SIGXCPU else "hang"],
            )
            n += 1
        cases = cases[n:]


def _child(table, cases, write):
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for target in (0, 1, 2):
            os.dup2(null, target)
        used = int(re.search(r"VmData:\s*(\d+)", Path("/proc/self/status").read_text())[1]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (used + (MEGABYTES << 20),) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for case in cases:
            spent = int(time.process_time()) + SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (spent, resource.getrlimit(resource.RLIMIT_CPU)[1]))
            try:
                answer = _judged(table, case)
            except BaseException as problem:  # noqa: BLE001 - a fault of the fuzzer is one, too
                answer = _shown(table, case), "dead", [f"in the fuzzer: {problem!r:.200}"]
            os.write(write, (json.dumps(answer) + "\n").encode())
    finally:
        os._exit(0)


def _shown(table, case):
    return f"{table[case[0]].name}({', '.join(f'{name}={label}' for name, label in case[1])})"


def _judged(table, case):
    """The case, its outcome and what is wrong with it."""
    i, changes = case
    call = table[i]
    values = {name: _values(call.arguments[name])[label] for name, label in changes}
    values = {name: iter(call.arguments[name]) if value is ONCE else value for name, value in values.items()}
    torch.manual_seed(0)
    try:
        call(**values)
    except BaseException as problem:  # noqa: BLE001 - what it raises is the question
        if any(callable(x) and "Callable" in str(call.hints.get(name)) for name, x in values.items()):
            return _shown(table, case), "its own function", []  # what that raises is the caller's
        return _shown(table, case), "refused", faults_of(problem)
    return _shown(table, case), "answered", _nonsense(call, values)


def faults_of(problem):
    """What is wrong with an error: nothing, if a ``raise`` of the package's own made it, in its words."""
    frames = list(traceback.walk_tb(problem.__traceback__))
    frame, _ = frames[-1]
    last = problem.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    where = Path(frame.f_code.co_filename)
    said = f"{type(problem).__name__}: {problem}"[:160].encode("ascii", "replace").decode()
    place = f"{where.name}:{last.tb_lineno}"
    if isinstance(problem, OSError) and problem.filename is not None:
        return []  # the system's own, which names the file and the reason
    if not where.is_relative_to(OURS) or not _raises(frame.f_code, last.tb_lasti):
        return [f"foreign at {_ours(frames)}: {said}"]
    if not isinstance(problem, KINDS) or FOREIGN.search(str(problem)) or len(str(problem)) < 15:
        return [f"no sentence at {place}: {said}"]
    return []


def _ours(frames):
    """The last line of the package's own on the way to an error."""
    own = [(frame, line) for frame, line in frames if Path(frame.f_code.co_filename).is_relative_to(OURS)]
    return f"{Path(own[-1][0].f_code.co_filename).relative_to(OURS)}:{own[-1][1]}" if own else "nowhere"


def _raises(code: types.CodeType, at: int) -> bool:
    """Whether the instruction there is a ``raise``."""
    return any(
        x.offset == at and x.opname in {"RAISE_VARARGS", "RERAISE"} for x in dis.get_instructions(code)
    )


def _nonsense(call, values):
    """Whether a value was taken that the annotation excludes."""
    from beartype.door import is_bearable

    for name, value in values.items():
        hint = call.hints.get(name)
        if hint is None or _is_near(hint, value):
            continue
        try:
            if not is_bearable(value, hint):
                return ["a value of another type was taken"]
        except Exception:  # noqa: BLE001, S112 - no judge for this annotation
            continue
    return []


def _is_near(hint, value):
    """What is as good as the annotation says: numbers of numpy's, lists for tuples, tensors of any shape."""
    shown = str(hint)
    if isinstance(value, torch.Tensor):
        return "Tensor" in shown
    if isinstance(value, list | tuple | range | set | frozenset | np.ndarray) or hasattr(value, "__next__"):
        return any(word in shown for word in ("Sequence", "tuple", "list", "Iterable", "Tensor"))
    if isinstance(value, bool | np.bool_):
        return "bool" in shown or "float" in shown  # 0.0 and 1.0: dropout_p=self.training and 0.1
    if isinstance(value, dict):
        return "Mapping" in shown  # of any keys, which are shown as text
    if isinstance(value, int | np.integer):
        return any(word in shown for word in ("int", "float"))
    if isinstance(value, float | np.floating):
        return "float" in shown
    return hint is typing.Any
