"""The checker of the shape hook: beartype, which sees a function inside another once.

The hook decorates a definition whenever it is executed. A function inside another would be analysed and
compiled by beartype in every call of the outer one: a third of the time of all tests under the hook.
"""

__all__ = ["checked"]

_CHECKED = {}


def checked(function):
    """What beartype makes of a function.

    The hook hands over empty functions: they have a signature, and neither a body nor a closure. Those of one
    name with equal signatures are checked alike.
    """
    from beartype import beartype  # not everywhere where GPU tests run, which have no hook

    if "<locals>" not in function.__qualname__:
        return beartype(function)
    code = function.__code__
    sizes = (code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    defaults = (len(function.__defaults__ or ()), *(function.__kwdefaults__ or ()))
    signature = (code.co_varnames, *sizes, *defaults, *function.__annotations__.items())
    key = (function.__module__, function.__qualname__, *signature)
    try:
        known = key in _CHECKED
    except TypeError:  # an annotation that cannot be compared
        return beartype(function)
    if not known:
        _CHECKED[key] = beartype(function)
    return _CHECKED[key]
