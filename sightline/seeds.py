"""The former name of :mod:`sightline.textbook`; it goes with the next release."""

raise ImportError("sightline.seeds was renamed, import sightline.textbook")
