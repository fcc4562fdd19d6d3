"""One thread for each test, as for those of the look."""

from tests.look.conftest import _one_thread  # noqa: F401
