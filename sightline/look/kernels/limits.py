"""A mask as a kernel reads it: the mechanism's own kernels read it the same way."""

from sightline.attention.kernels.limits import NO_LIMIT, Limits, limits_of, window_of

__all__ = ["NO_LIMIT", "Limits", "limits_of", "window_of"]
