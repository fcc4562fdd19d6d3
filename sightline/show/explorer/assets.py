"""The script and the style of the explorer, each as one text."""

import base64
import functools
import hashlib
import re
from importlib import resources

__all__ = ["content_policy", "page_script", "script", "style"]

# In the order in which they need each other; each file is a module of its own while it is worked on.
_MODULES = (
    "parts.js",
    "source.js",
    "text.js",
    "picture.js",
    "word.js",
    "overview.js",
    "matrix.js",
    "lines.js",
    "image.js",
    "film.js",
    "compare.js",
    "export.js",
    "explorer.js",
)
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
    """The style sheet."""
    return _read("explorer.css")


def _read(name: str) -> str:
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
