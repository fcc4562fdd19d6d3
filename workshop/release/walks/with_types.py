"""Shapes in annotations become jaxtyping's."""

from sightline.shapes import Float

assert Float.__module__.startswith("jaxtyping"), Float
print("annotations of shapes that jaxtyping checks")
