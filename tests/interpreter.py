"""Triton's interpreter, which runs the kernels where there is no GPU, made fast enough for many small tests.

Before each call of a function inside a kernel the interpreter puts its own operations into `triton.language`
again, though those of the launch are still there: half of the time of such a test. Here each module gets them
once a launch.

Triton 3.6 and NumPy >= 2.4 disagree: its interpreter has `int()` of an array of one number, which NumPy
refuses unless it has no dimension. Here it is the number.
"""

import functools

import torch


def interpret_fast():
    """Spare the interpreter what it repeats; leave a GPU, and an interpreter of another build, alone."""
    if torch.cuda.is_available():
        return
    try:
        from triton.runtime import interpreter

        patch, scope = interpreter._patch_lang, interpreter._LangPatchScope
        patch_tensor = interpreter._patch_lang_tensor
    except (ImportError, AttributeError):
        return
    if hasattr(patch, "__wrapped__"):
        return
    restore, patched = scope.restore, set()

    @functools.wraps(patch)
    def patch_once(function):
        module = id(function.__globals__)
        if module in patched:
            return scope()  # which has nothing to restore
        patched.add(module)
        return patch(function)

    def restore_and_forget(self):  # at the end of a launch
        patched.clear()
        restore(self)

    def patch_tensor_for_numpy(tensor, its_scope):
        patch_tensor(tensor, its_scope)
        its_scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang, scope.restore = patch_once, restore_and_forget
    interpreter._patch_lang_tensor = patch_tensor_for_numpy
