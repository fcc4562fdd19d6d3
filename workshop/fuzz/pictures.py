"""Small sound pictures and sets of them with captions, for what is put around hostile ones."""

import csv
import io
import zipfile

from PIL import Image

__all__ = ["captioned", "encoded", "packed", "picture"]


def picture(chance, mode="RGB", size=None):
    side = size or (chance.randrange(1, 40), chance.randrange(1, 40))
    return Image.new(mode, side, chance.randrange(200) if mode in "L1PIF" or mode == "I;16" else None)


def encoded(image, kind="PNG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def captioned(chance, n, texts=()):
    """The files of a set of n pictures, with a table of captions."""
    names = [f"{i}.png" for i in range(n)]
    captions = [*texts, *("a small dog on the grass",) * n][:n]
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["image", "caption"])
    writer.writerows(zip(names, captions, strict=True))
    files = {name: encoded(picture(chance, size=(9, 7))) for name in names}
    return files | {"captions.csv": table.getvalue().encode("utf-8", "surrogatepass")}


def packed(chance, folder, files):
    """A folder or a zip of files."""
    if chance.random() < 0.3:
        with zipfile.ZipFile(folder / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return folder / "set.zip"
    (folder / "set").mkdir()
    for name, content in files.items():
        (folder / "set" / name).write_bytes(content)
    return folder / "set"
