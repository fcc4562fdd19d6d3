"""Triton kernels of the mechanism. Nothing here is imported before a GPU's tensors ask for it."""
