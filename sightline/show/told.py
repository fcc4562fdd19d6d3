"""The former name of :mod:`sightline.show.caption_overlay`."""  # until cli/ is rebuilt

from sightline.show.caption_overlay import SHARES, Box, CaptionOverlay, Told

__all__ = ["SHARES", "Box", "CaptionOverlay", "Told"]
