"""The groups that the tests of commands show."""

import pytest

from streaming.views import Views
from tests.streaming.views.golden_views import story


@pytest.fixture
def views() -> Views:
    return story()
