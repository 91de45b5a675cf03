"""The groups in the expected output of the commands."""

import pytest

from streaming.views import Views
from tests.streaming.views.golden_views import example_views


@pytest.fixture
def views() -> Views:
    return example_views()
