# ruff: noqa: INP001
"""What the site adds to its pages: formulas as MathML, and the source files that a page links to.

Formulas are written `$...$` in a line and `$$...$$` on lines of their own, and become MathML here: browsers
draw it themselves, without a script. A link to source (`../../sightline/attention/reference.py#L18`) leads to
a page of the site that shows that file, so that the site is whole where the repository is not at hand.
"""

import html
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*(?:\\\((.*?)\\\)|\\\[(.*?)\\\])\s*</\1>', re.DOTALL)
LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s#]+)(#[^)\s]*)?\)")
SHIM = "https://unpkg.com/iframe-worker/shim"  # what the theme would load
FRAME = '<div class="frame" tabindex="0" role="region" aria-label="Table">'
LANGUAGES = {".py": "python", ".toml": "toml", ".js": "javascript", ".yml": "yaml"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every source file that a page links to."""
    for page in list(files.documentation_pages()):
        for _, target, _ in LINK.findall(Path(page.abs_src_path).read_text(encoding="utf-8")):
            source = outside(target, page.src_uri)
            if source and files.get_file_from_path(place_of(source)) is None:
                text = shown(source)
                files.append(File.generated(config, place_of(source), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to source files to their pages here."""

    def here(found: re.Match[str]) -> str:
        source = outside(found[2], page.file.src_uri)
        if source is None:
            return found[0]
        line = re.fullmatch(r"#L(\d+)", found[3] or "")
        place = os.path.relpath(place_of(source), Path(page.file.src_uri).parent)
        return f"{found[1]}{place}{f'#__codelineno-0-{line[1]}' if line else ''})"

    return markdown if page.file.src_uri.startswith("source/") else LINK.sub(here, markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Draw formulas as MathML, let wide tables be scrolled by the keys, and fill the room of no contents."""
    if not any(head.children for head in page.toc):
        page.meta["hide"] = ["toc"]
    framed = content.replace("<table>", f"{FRAME}<table class='wide'>").replace("</table>", "</table></div>")
    return FORMULA.sub(mathml, content if 'class="highlighttable"' in content else framed)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Take the script that lets the search work from a folder from the site itself, not from a network."""
    return mended(output, page.file.dest_uri.count("/"))


def on_post_template(output: str, **_: Any) -> str:
    """The same for the page that says that there is no page."""
    return mended(output, 0)


def mended(output: str, depth: int) -> str:
    """A page with the site's own script, and a name for what the theme leaves without one."""
    search = 'data-md-component="search" role="dialog"'
    named = output.replace(search, f'{search} aria-label="Search"')
    return named.replace(SHIM, f"{'../' * depth}assets/worker.js")


def mathml(found: re.Match[str]) -> str:
    """One formula."""
    inline, block = found[2], found[3]
    tex = html.unescape(inline if inline is not None else block).strip()
    drawn = convert(tex, display="inline" if inline is not None else "block")
    return drawn if inline is not None else f'<div class="formula" tabindex="0">{drawn}</div>'


def outside(target: str, page: str) -> Path | None:
    """The file of the repository that a link leads to, where it is no page."""
    path = Path(os.path.normpath(ROOT / "docs" / Path(page).parent / target))
    is_page = path.is_relative_to(ROOT / "docs") and path.suffix not in {".py", ".json"}
    if is_page or not path.exists():
        return None
    return path.relative_to(ROOT)


def place_of(source: Path) -> str:
    """Where the site shows a source file."""
    return f"source/{source}.md"


def shown(source: Path) -> str:
    """A source file as a page; a folder as the list of its files."""
    head = f"---\ntitle: {source.name}\nsearch:\n  exclude: true\n---\n\n# {source}\n\n"
    if (ROOT / source).is_dir():
        return head + "\n".join(f"- `{each.name}`" for each in sorted((ROOT / source).glob("[!_]*")))
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.suffix == ".md":
        return head + text.partition("\n")[2]
    return f'{head}``````{LANGUAGES.get(source.suffix, "text")} linenums="1"\n{text}``````\n'
