"""Small sound pictures, for what is put around hostile ones."""

import io

from PIL import Image

__all__ = ["encoded", "picture"]


def picture(chance, mode="RGB", size=None):
    side = size or (chance.randrange(1, 40), chance.randrange(1, 40))
    return Image.new(mode, side, chance.randrange(200) if mode in "L1PIF" or mode == "I;16" else None)


def encoded(image, kind="PNG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()
