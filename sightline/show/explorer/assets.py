"""The script and the style of the explorer, each as one text."""

import base64
import functools
import hashlib
import json
import re
from importlib import resources

from sightline.look.palette import THEME, VEIL, difference, glow, hexadecimal, scale, weight

__all__ = ["content_policy", "page_script", "script", "style"]

# In the order in which they need each other; each file is a module of its own while it is worked on.
_MODULES = (
    "palette.js",
    "parts.js",
    "source.js",
    "text.js",
    "picture.js",
    "word.js",
    "overview.js",
    "drawing.js",
    "handling.js",
    "matrix.js",
    "lines.js",
    "image.js",
    "film.js",
    "shared.js",
    "compare.js",
    "export.js",
    "explorer.js",
)
_STOPS = 33  # colours of a scale that the script knows, and draws lines between
_IMPORT = re.compile(r'^import (\{.*?\}) from "\./([a-z]+)\.js";$', re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?:async )?(?:const|function) (\w+)", re.MULTILINE)


@functools.cache
def script() -> str:
    """The explorer as one ES module that imports nothing; it exports ``mount(root, source, options)``.

    Example:
        >>> "import {" in script(), script().splitlines()[-1]
        (False, 'export const { mount, mountSaved } = $explorer;')
    """
    return "".join(map(_scoped, _MODULES)) + "export const { mount, mountSaved } = $explorer;\n"


def _scoped(file: str) -> str:
    """A module as a function that is called once: its names are its own, its exports are returned."""
    text = _read(file)
    names = ", ".join(_EXPORT.findall(text))
    body = _IMPORT.sub(r"const \1 = $\2;", text)
    body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
    return f"const ${file.removesuffix('.js')} = (() => {{\n{body}return {{ {names} }};\n}})();\n"


def style() -> str:
    """The style sheet, with the palette's colours as variables, for light and for dark."""
    colours = "".join(f" --{name}: light-dark({light}, {dark});" for name, (light, dark) in THEME.items())
    mark = f" --mark: {THEME['accent'][1]};"  # over an image, which is dark in either theme
    return f".sl, .sl-page {{ color-scheme: light dark;{colours}{mark} }}\n{_read('explorer.css')}"


def _palette() -> str:
    """The palette's scales as a module."""
    scales = {
        f"{theme} {name}": scale(colour, _STOPS, least=least, dark=theme == "dark")
        for theme in ("light", "dark")
        for name, colour, least in (("weights", weight, 0.0), ("differences", difference, -1.0))
    }
    scales["glow"] = scale(glow, _STOPS)
    stops = {name: [hexadecimal(colour) for colour in colours] for name, colours in scales.items()}
    return f"export const SCALES = {json.dumps(stops)};\nexport const VEIL = {list(VEIL)};\n"


def _read(name: str) -> str:
    if name == "palette.js":
        return _palette()
    return (resources.files("sightline.show.explorer") / name).read_text(encoding="utf-8")


def page_script() -> str:
    """The script of a saved page: the explorer, and a line that starts every one of the page's."""
    return script() + "mountSaved(document);\n"


def content_policy(style_text: str, script_text: str) -> str:
    """A content policy for one style and one script: nothing else runs, and nothing is loaded."""
    styles, scripts = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" if text else "'none'"
        for text in (style_text, script_text)
    )
    return (
        f"default-src 'none'; img-src data: blob:; style-src {styles}; script-src {scripts}; "
        "base-uri 'none'; form-action 'none'"
    )
