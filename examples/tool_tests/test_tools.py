"""Four kinds of tool test with the same goldens: `pytest`."""

import pytest
from bot import answer


@pytest.mark.goldens("goldens.yaml")
def test_tools(golden_case):
    answer(golden_case.input)
