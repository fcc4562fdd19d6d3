"""The kernels run on a GPU where there is one, and by Triton's interpreter elsewhere: the same tests."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported
