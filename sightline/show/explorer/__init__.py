"""The explorer: attention you can walk through, in a saved page, a notebook or a served page.

    sightline.show.page(seen, tokens=words).save("page.html")

One ES module draws all views, :func:`script`, and asks ``source.ask(request)``; one object answers,
:class:`Answers`: inside a notebook, behind a server, or beforehand for a saved page.
"""

from sightline.show.explorer.answers import Answers
from sightline.show.explorer.assets import script, style
from sightline.show.explorer.page import Page, page
from sightline.show.explorer.steps import Step

__all__ = ["Answers", "Page", "Step", "page", "script", "style"]
