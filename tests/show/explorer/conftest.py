"""A browser, and pages that it opens."""

import pytest

from tests.show.explorer.browser import launched
from tests.show.explorer.saved_pages import SavedPages


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return SavedPages(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def context(browser):
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    yield context
    context.close()
