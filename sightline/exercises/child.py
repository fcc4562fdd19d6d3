"""The other side of the grader: runs a student's file in a process of its own, with torch alone.

The parent sends the file and the calls to make as one JSON object on standard input. The answers go back one
JSON line each on what was standard output; what the file prints goes to standard error. The key is not here.
"""

import base64
import json
import math
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

__all__ = ["decoded", "encoded", "perform"]

_DTYPES = {str(x).removeprefix("torch."): x for x in (torch.bool, torch.int64, torch.float32, torch.float64)}
_LARGEST = 1 << 18  # numbers in an answer
_DEEPEST = 4
_WHOLE = 1 << 63
_LONGEST = 400  # letters of a message, entries of a list


def encoded(value: Any, depth: int = 0) -> Any:
    """A value as JSON: tensors as their bytes, lists, numbers, text; of all else the name of its type."""
    if isinstance(value, torch.Tensor):
        return _encoded_tensor(value)
    if value is None or isinstance(value, bool | float | str) or (type(value) is int and abs(value) < _WHOLE):
        return value[: _LONGEST * 10] if isinstance(value, str) else value
    if depth < _DEEPEST and isinstance(value, list | tuple) and len(value) <= _LONGEST:
        return {"list": [encoded(x, depth + 1) for x in value], "pair": isinstance(value, tuple)}
    if depth < _DEEPEST and isinstance(value, dict) and len(value) <= _LONGEST:
        return {"dict": {str(key): encoded(x, depth + 1) for key, x in value.items()}}
    if hasattr(value, "__array__"):  # numpy's
        return _encoded_tensor(torch.as_tensor(value))
    return {"other": type(value).__name__[:40]}


def _encoded_tensor(value: torch.Tensor) -> Any:
    value = value.detach().cpu()
    if value.numel() > _LARGEST:
        return {"other": f"tensor of shape {tuple(value.shape)}"}
    wide = torch.float64 if value.is_floating_point() else torch.int64
    if str(value.dtype).removeprefix("torch.") not in _DTYPES:
        value = value.to(wide)
    return {
        "tensor": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "data": base64.b64encode(value.contiguous().numpy().tobytes()).decode(),
    }


def decoded(content: Any) -> Any:
    """The value that was encoded.

    Raises:
        ValueError: If it is not what ``encoded`` writes.
    """
    if isinstance(content, int) and abs(content) >= _WHOLE:
        raise ValueError("an answer has a whole number that is too large")
    if content is None or isinstance(content, bool | int | float | str):
        return content
    if not isinstance(content, dict):
        raise ValueError(f"an answer can't be {type(content).__name__!r}")  # noqa: TRY004 - it is content
    if "list" in content:
        values = [decoded(x) for x in content["list"]]
        return tuple(values) if content.get("pair") else values
    if "dict" in content:
        return {key: decoded(x) for key, x in content["dict"].items()}
    if "tensor" in content:
        return _decoded_tensor(content)
    return Other(str(content.get("other"))[:80])


def _decoded_tensor(content: dict[str, Any]) -> torch.Tensor:
    dtype, shape = _DTYPES.get(str(content["tensor"])), content["shape"]
    if dtype is None or len(shape) > 8 or not all(type(n) is int and 0 <= n <= _LARGEST for n in shape):
        raise ValueError("an answer has an unknown type or shape")
    data = bytearray(base64.b64decode(content["data"], validate=True))
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError("an answer has more or fewer bytes than its shape says")
    if not data:
        return torch.empty(shape, dtype=dtype)
    if dtype is torch.bool:
        return (torch.frombuffer(data, dtype=torch.uint8) != 0).reshape(shape)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)


class Other:
    """A value that can't be sent; its type is told."""

    def __init__(self, name: str) -> None:
        self.name = name


def perform(names: dict[str, Any], probe: dict[str, Any]) -> Any:
    """Make one call: of a function, or of an object that is made first."""
    if probe.get("seed") is not None:
        torch.manual_seed(probe["seed"])
    args = list(probe["args"])
    if probe.get("draw"):
        args.insert(0, torch.rand(*probe["draw"]))
    called = names[probe["name"]]
    if probe.get("init") is not None:
        called = called(*probe["init"])
    if probe.get("method"):
        called = getattr(called, probe["method"])
    return called(*args)


def _problem(caught: BaseException, path: str) -> dict[str, Any]:
    """What went wrong, with the line of the student's file."""
    lines = [frame.lineno for frame in traceback.extract_tb(caught.__traceback__) if frame.filename == path]
    line = caught.lineno if isinstance(caught, SyntaxError) else lines[-1] if lines else None
    message = caught.msg if isinstance(caught, SyntaxError) else str(caught)
    return {"error": type(caught).__name__, "message": message[:_LONGEST], "line": line}


def _limit_memory(more: int) -> None:
    """Let this process grow by so many bytes and no more, on Linux; elsewhere the system's limit stands."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 24,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        return


def _answer(names: dict[str, Any], probe: dict[str, Any], path: str) -> dict[str, Any]:
    if probe["name"] not in names:
        return {"missing": probe["name"]}
    try:
        probe = probe | {key: decoded(probe[key]) for key in ("args", "init")}
        return {"answer": encoded(perform(names, probe))}
    except BaseException as caught:  # noqa: BLE001 - whatever a student's file raises is told
        return _problem(caught, path)


def _main() -> None:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def say(line: dict[str, Any]) -> None:
        channel.write(json.dumps(line) + "\n")
        channel.flush()

    sys.modules["sightline"] = None  # type: ignore[assignment] # exercises are solved with torch alone
    torch.set_num_threads(1)
    _limit_memory(request["memory"])
    say({"ready": True})
    path = request["path"]
    names: dict[str, Any] = {"__name__": "exercise", "__file__": path}
    try:
        exec(compile(request["source"], path, "exec"), names)  # noqa: S102 - what this process is for
    except BaseException as caught:  # noqa: BLE001
        say(_problem(caught, path))
    else:
        for probe in request["probes"]:
            say(_answer(names, probe, path))
    sys.stdout.flush()
    os._exit(0)  # threads and exit handlers of the file have no say


if __name__ == "__main__":
    _main()
