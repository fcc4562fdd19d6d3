"""The script and the style of the explorer, each as one text."""

import functools
import re
from importlib import resources

__all__ = ["script", "style"]

# In the order in which they need each other; each file is a module of its own while it is worked on.
_MODULES = ("parts.js", "explorer.js")
_IMPORT = re.compile(r'^import .*? from "\./[a-z_]+\.js";\n', re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?=(?:const|function|async|class) )", re.MULTILINE)


@functools.cache
def script() -> str:
    """The explorer as one ES module that imports nothing; it exports ``mount(root, source, options)``.

    Example:
        >>> "export { mount };" in script(), "import " in script()
        (True, False)
    """
    parts = (_EXPORT.sub("", _IMPORT.sub("", _read(name))) for name in _MODULES)
    return "\n".join([*parts, "export { mount };\n"])


def style() -> str:
    """The style sheet."""
    return _read("explorer.css")


def _read(name: str) -> str:
    return (resources.files("sightline.show.explorer") / name).read_text(encoding="utf-8")
