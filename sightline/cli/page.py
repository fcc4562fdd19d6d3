"""One HTML file that holds its pictures: it opens anywhere, offline, and can be sent as it is."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from sightline.cli.mechanism import Picture

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 56rem; margin: 2rem auto; padding: 0 1rem; font: 1.05rem/1.55 system-ui, sans-serif;
       color: #222; background: #fff; }}
h1 {{ font-size: 1.7rem; }}
h2 {{ font-size: 1.25rem; margin: 2.5rem 0 0.5rem; }}
figure {{ margin: 0; }}
img {{ max-width: 100%; height: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.15rem 0.8rem 0.15rem 0; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
tr.marked {{ font-weight: bold; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{introduction}</p>
{sections}
{after}
</body>
</html>
"""

_SECTION = """<h2>{title}</h2>
<figure>
<img alt="{title}" src="data:image/png;base64,{data}">
<figcaption>{caption}</figcaption>
</figure>
"""


def page(title: str, introduction: str, pictures: Sequence[tuple[Picture, Path]], after: str = "") -> str:
    """Write the page: a heading, an introduction, each PNG with its title and caption, HTML that follows."""
    sections = (
        _SECTION.format(
            title=html.escape(picture.title),
            caption=html.escape(picture.caption),
            data=base64.b64encode(path.read_bytes()).decode(),
        )
        for picture, path in pictures
    )
    return _PAGE.format(
        title=html.escape(title),
        introduction=html.escape(introduction),
        sections="\n".join(sections),
        after=after,
    )
