"""Everything that a watch might leave something in, and what raises inside a model."""

import sys
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.runs import run


class Stopped(Exception):
    """What is raised inside a model."""


def stop(*_):
    raise Stopped


def run_and_stop(model, inputs):
    run(model, inputs)
    raise Stopped


def last_called(model, inputs):
    """The innermost module that begins last."""
    called = []
    hooks = [m.register_forward_pre_hook(lambda m, _: called.append(m)) for m in model.modules()]
    run(model, inputs)
    for hook in hooks:
        hook.remove()
    return called[-1]


HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]


def state_of(model):
    """Everything that a watch might leave something in, by name."""
    c = torch._C
    of_torch = {
        "function modes": c._len_torch_function_stack(),
        "dispatch modes": c._len_torch_dispatch_stack(),
        "keys": (
            c._dispatch_tls_local_include_set().raw_repr(),
            c._dispatch_tls_local_exclude_set().raw_repr(),
        ),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "saved tensors' hooks": c._autograd._top_saved_tensors_default_hooks(True),
        "filters of warnings": len(warnings.filters),
    }
    modules = {f"{name} {type(m).__name__}": set(vars(m)) for name, m in model.named_modules()}
    hooks = {
        f"hooks of {name}": [dict(vars(m).get(x, {})) for x in HOOKS] for name, m in model.named_modules()
    }
    frames = sys.modules.get("torch._dynamo.eval_frame", F)  # what compiled code begins with
    shared = (
        frames,
        nn.Module,
        nn.MultiheadAttention,
        nn.TransformerEncoderLayer,
        Tensor,
        torch,
        F,
        nn.modules.module,
    )
    places = {f"functions of {x.__name__}": {k: v for k, v in vars(x).items() if callable(v)} for x in shared}
    everywhere = {
        k: dict(v)
        for k, v in vars(nn.modules.module).items()
        if k.startswith("_global") and k.endswith("hooks")
    }
    return of_torch | modules | hooks | places | everywhere


def changes(before, after):
    """The names under which two states differ."""
    return [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
