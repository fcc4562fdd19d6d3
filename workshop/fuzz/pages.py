"""Pages: every string of a page is hostile once, and the page is opened in a real browser. Nothing may run.

A page is made of plain words; one of its strings, chosen by chance, is replaced by markup that would run,
load or draw something if it were taken for more than text.
"""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

import sightline as sl
from sightline import show
from sightline.show import pages
from tests.show.explorer.browser import launched
from tests.show.predictions import caption, classified, translation
from tests.show.test_pages import a_report, a_walk
from workshop.fuzz.report import Report

RUN = "window.owned=1"
MARKUP = "iframe, base, form, link, meta[http-equiv=refresh]"  # which none of our pages has
PAYLOADS = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</textarea><img src=x onerror={RUN}>",
    f"<img src=x onerror={RUN}>",
    f'"><svg onload={RUN}>',
    f"'><svg onload={RUN}>",
    f'" onmouseover="{RUN}" autofocus onfocus="{RUN}" x="',
    f"javascript:{RUN}",
    f"<!--<script>{RUN}//-->",
    f"\u2028{RUN}\u2028",
    f"${{{RUN}}}{{{{ {RUN} }}}}{{% {RUN} %}}",
    f"\\u003cscript\\u003e{RUN}",
    "<iframe src='//outside.invalid'></iframe><link rel=stylesheet href='//outside.invalid/x.css'>",
    "<base href='//outside.invalid/'><meta http-equiv=refresh content='0;url=//outside.invalid'>",
    "@import '//outside.invalid/x.css'; body{background:url(//outside.invalid/x.png)}",
    "<form action='//outside.invalid'><button autofocus>x",
    "\x00\x1b]0;x\x07<script\x00>" + RUN,
    "]]><script>" + RUN + "</script>",
    "x" * 100_000,
)


def fuzz(cases, place):
    """Open a page for each case."""
    report = Report(cases.name, cases.seed)
    makers = (_explorer, _results, _report, _figures)
    with launched() as browser:
        context = browser.new_context(viewport={"width": 900, "height": 700})
        for _, chance in cases:
            name, html = _page(chance, chance.choice(makers))
            report.add(name, name.partition(" ")[0], _opened(context, html))
        context.close()
    return report


def _page(chance, make):
    """What was replaced by what, and the page."""
    call, arguments = make()
    where = chance.randrange(len(list(_strings(list(arguments.values())))))
    payload, left = chance.choice(PAYLOADS), [where]
    html = call(**{name: _replaced(value, left, payload) for name, value in arguments.items()})
    return f"{make.__name__.strip('_')} {where} {payload!r:.60}", html


def _opened(context, html):
    """Open a page; say what ran, was asked for or complained."""
    faults = []
    page = context.new_page()
    page.on("dialog", lambda dialog: (faults.append("a dialog"), dialog.dismiss()))
    page.on("pageerror", lambda error: faults.append(f"an error: {error!s:.80}"))
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8", errors="surrogateescape") as file:
        file.write(html)
        file.flush()
        own = f"file://{file.name}"
        page.on("request", lambda request: _asked(request.url, own, faults))
        page.goto(own)
        page.mouse.move(300, 300)
        page.keyboard.press("Tab")
        if page.evaluate("window.owned"):
            faults.append("something ran")
        if page.evaluate(
            "document.querySelectorAll('iframe, base, form, link, meta[http-equiv=refresh]').length"
        ):
            faults.append("markup was taken for markup")
        page.close()
    return faults


def _asked(url, own, faults):
    if url.partition("#")[0] != own and not url.startswith(("data:", "blob:")):
        faults.append(f"asked for {url[:60]}")


def _strings(value):
    """All strings in the arguments of a page."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, sl.Sight):
        for field in dataclasses.fields(value):
            yield from _strings(getattr(value, field.name))


def _replaced(value, where, payload):
    """The same with the string at ``where[0]`` replaced."""
    if isinstance(value, str):
        where[0] -= 1
        return payload if where[0] == -1 else value
    if isinstance(value, Mapping):
        return {_replaced(key, where, payload): _replaced(x, where, payload) for key, x in value.items()}
    if isinstance(value, list | tuple):
        made = [_replaced(inner, where, payload) for inner in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if dataclasses.is_dataclass(value) and not isinstance(value, sl.Sight):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        made = {name: _replaced(inner, where, payload) for name, inner in fields.items()}
        return dataclasses.replace(value, **made)
    return value


def _explorer():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 5, 4, generator=generator)
    sight = sl.look(x, x, x)
    step = show.Step(token="c", probability=0.5, alternatives=[("d", 0.5)], query=4)  # noqa: S106
    shown = {"first": sight, "second": sight}
    return lambda **options: show.page(**options).html(), {
        "shown": shown,
        "other": dict(shown),
        "tokens": list("abcde"),
        "title": "a title",
        "model": "a model",
        "names": ("before", "after"),
        "steps": [step],
    }


def _results():
    return pages.results_page, {
        "title": "results",
        "about": "of a run",
        "scores": {"bleu": 1.0},
        "signatures": {"bleu": "v1"},
        "sections": {"a": [_worded(caption()), _worded(translation())], "b": [_worded(classified())]},
        "figures": {},
    }


def _worded(p):
    return dataclasses.replace(p, references=("one", "two"), metrics={"bleu": 0.5})


def _report():
    def call(**fields):
        title, run = fields.pop("title"), fields.pop("run")
        return pages.report_page(a_report(**fields, run=Path(run.replace("\0", "0"))), title=title)

    return call, {
        "title": "report",
        "run": "runs/demo",
        "facts": "It learned.",
        "about": "7 scenes",
        "scores": {"bleu4": 0.5},
        "signatures": {"bleu4": "v1"},
        "shown": [_worded(caption())],
        "walk": a_walk(),
    }


def _figures():
    figure = show.weights(torch.eye(3))
    return pages.figures_page, {
        "title": "figures",
        "introduction": "of heads",
        "figures": {"one": (figure, "a figure")},
    }
