"""README and the pages of docs/: links and pictures lead somewhere, every page is in the contents.

None of this needs the packages that build the site.
"""

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
HOW_TOS = [page for page in PAGES if page.parent.name == "do" and page.stem != "index"]
KINDS = {"learn", "do", "know", "lookup"}
LINK = re.compile(r"\]\(([^)\s]+)(?:\s\"[^\"]*\")?\)")
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.plain


def prose(path):
    return FENCE.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path):
    """What the headings of a page are called in links, as Python-Markdown's toc names them."""
    heads = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    heads = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", head) for head in heads]
    plain = [re.sub(r"[^\w\s-]", "", head).strip().lower() for head in heads]
    return {re.sub(r"[-\s]+", "-", head) for head in plain}


def is_there(path, anchor):
    """Whether a page has a heading, or a source file a line."""
    if path.suffix == ".md":
        return anchor in anchors(path)
    return not re.fullmatch(r"L\d+", anchor) or int(anchor[1:]) <= len(path.read_text().splitlines())


def broken(page):
    """Links of a page that lead nowhere."""
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        if not there.exists() or (anchor and not is_there(there, anchor)):
            yield link


def listed(nav):
    """The files that the table of contents names."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from listed(value) if isinstance(value, list) else [value]


@pytest.fixture(scope="module")
def nav():
    text = (ROOT / "mkdocs.yml").read_text()
    return yaml.safe_load(text)["nav"]


def test_every_relative_link_and_picture_resolves():
    looked_at = [*ROOT.glob("*.md"), *PAGES]
    looked_at.remove(ROOT / "CHANGELOG.md")  # tells of what was
    found = {str(page.relative_to(ROOT)): [*broken(page)] for page in looked_at}
    assert not {page: links for page, links in found.items() if links}


def test_every_page_is_in_the_contents_once_and_every_entry_is_a_page(nav):
    entries = [*listed(nav)]
    assert sorted(entries) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


def test_a_page_is_of_one_kind(nav):
    assert {page.parent.name for page in PAGES} == KINDS | {"docs"}
    assert [page.name for page in DOCS.glob("*.md")] == ["index.md"]
    for entry in nav[1:]:
        (pages,) = entry.values()
        assert len({Path(page).parent for page in listed(pages)}) == 1


@pytest.mark.parametrize("page", HOW_TOS, ids=[page.stem for page in HOW_TOS])
def test_a_how_to_is_one_question_on_one_screen_with_one_picture_and_the_cost(page):
    text = page.read_text(encoding="utf-8")
    assert text.splitlines()[0].endswith("?")
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 140
    assert text.count("\n![") == 1
    assert text.count("**What it costs.**") == 1


def test_every_picture_is_shown_somewhere():
    shown = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *PAGES])
    assert not [picture.name for picture in (DOCS / "pictures").iterdir() if picture.name not in shown]


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    text = "# A head\n[a](#a-head) [b](#no-head) [c](gone.md) [d](page.md#a-head)\n```\n[e](x)\n```\n"
    page.write_text(text)
    assert [*broken(page)] == ["#no-head", "gone.md"]
