import logging

import pytest

from sightline.cli import print_log
from sightline.messages import logger


@pytest.fixture(autouse=True)
def _as_before():
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:], logger.level = handlers, level


def test_a_library_is_silent_until_somebody_listens(capsys):
    logger.handlers[:] = [handler for handler in logger.handlers if isinstance(handler, logging.NullHandler)]
    logger.warning("nobody listens")
    assert capsys.readouterr() == ("", "")


def test_lines_are_plain_and_printed_once(capsys):
    print_log()
    print_log()
    logger.info("%d images are left out", 3)
    logger.debug("not this one")
    assert capsys.readouterr() == ("", "3 images are left out\n")
