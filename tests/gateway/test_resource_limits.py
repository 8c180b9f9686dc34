"""Tests of the table of limits and of invalid limits."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from goldspan.errors import ConfigurationError
from goldspan.gateway.resource_limits import LIMITS, MAX_DEPTH, ResourceLimits


def test_the_table_lists_every_limit_and_the_fixed_depth():
    assert {limit.name for limit in LIMITS} == {field.name for field in fields(ResourceLimits)} | {"max_depth"}
    assert len(LIMITS) == len({limit.name for limit in LIMITS})
    defaults = {limit.name: limit.default for limit in LIMITS}
    assert defaults == {field.name: field.default for field in fields(ResourceLimits)} | {"max_depth": MAX_DEPTH}


def test_each_limit_with_an_http_status_has_a_grpc_code():
    assert all((limit.http_status is None) == (limit.grpc_code is None) for limit in LIMITS)
    assert all(limit.unit and limit.effect for limit in LIMITS)


@pytest.mark.parametrize("name", [field.name for field in fields(ResourceLimits)])
@pytest.mark.parametrize("value", [0, -1, True, "5", None, math.nan])
def test_a_limit_is_a_positive_number(name, value):
    with pytest.raises(ConfigurationError, match=f"^{name} must be an? (integer|number) .*, not "):
        replace(ResourceLimits(), **{name: value})


def test_durations_may_be_fractions_and_counts_must_be_integers():
    assert ResourceLimits(header_seconds=0.5).header_seconds == 0.5
    with pytest.raises(ConfigurationError, match=r"max_spans must be an integer of at least 1, not 1\.5"):
        ResourceLimits(max_spans=1.5)  # type: ignore[arg-type]
