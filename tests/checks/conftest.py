"""A training that is about to begin, with a toy detector: what a check watches."""

from __future__ import annotations

from functools import partial

import pytest


@pytest.fixture
def begin(tiny):
    """Setup and job of a run of 13 pictures: windows of 2 x 2 images and a last one of 1."""
    from checks.toys import about_to_begin

    return partial(about_to_begin, str(tiny))
