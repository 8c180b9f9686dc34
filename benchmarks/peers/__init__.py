"""Lists the peers against which scoring is timed. Each peer is installed into an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Options: TypeAlias = Mapping[str, Any]
"""A peer's own options, which its profile accepts too."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A Python package that computes a score for which goldspan has a profile."""

    name: str
    """The name of the profile, and of the function in `worker.py` that prepares the peer."""
    requirement: str
    measured: Sequence[Options]
    """The options with which it is timed."""
    takes_names: bool = False
    """Whether it accepts only the names of tools."""
    alone: bool = False
    """Whether it is installed without its dependencies, which are many and mostly unused by the score."""
    needs: Sequence[str] = ()
    """Packages that are installed in addition, or in place of its dependencies."""


_TRAJECTORY_MATCHES = tuple({"trajectory_match_mode": mode} for mode in ("strict", "unordered", "subset", "superset"))
_PARAMETERS = {"evaluation_params": ["input_parameters"]}

PEERS = (
    Peer(
        "deepeval",
        "deepeval==4.3.1",
        (
            {},
            {"should_consider_ordering": True},
            {"should_exact_match": True},
            _PARAMETERS,
            {**_PARAMETERS, "should_consider_ordering": True},
        ),
    ),
    Peer("agentevals", "agentevals==0.0.9", _TRAJECTORY_MATCHES),
    Peer("openevals", "openevals==0.2.2", _TRAJECTORY_MATCHES),
    Peer(
        "azure",
        "azure-ai-evaluation==1.18.10",
        (
            {},
            {"matching_mode": "in_order_match"},
            {"matching_mode": "any_order_match"},
            {"with_parameters": True},
        ),
    ),
    Peer("mlflow", "mlflow==3.17.2", ({}, {"should_consider_ordering": True})),
    Peer(
        "ragas",
        "ragas==0.4.3",
        ({}, {"strict_order": False}, {"metric": "ToolCallF1"}),
        needs=("langchain-community<0.4",),
    ),
    Peer(
        "bfcl",
        "bfcl-eval==2026.3.23",
        ({},),
        alone=True,
        needs=("tree-sitter==0.21.3", "tree-sitter-java==0.21.0", "tree-sitter-javascript==0.21.4"),
    ),
    Peer(
        "langchain_benchmarks",
        "langchain-benchmarks==0.0.14",
        ({}, {"order_matters": False}),
        takes_names=True,
        needs=("greenlet",),
    ),
    Peer(
        "pydantic_evals",
        "pydantic-evals==2.62.0",
        (
            {},
            {"allow_extra": True},
            {"evaluator": "TrajectoryMatch"},
            {"evaluator": "TrajectoryMatch", "order": "any_order"},
        ),
    ),
    Peer(
        "google_adk",
        "google-adk==2.13.0",
        ({}, {"match_type": "IN_ORDER"}, {"match_type": "ANY_ORDER"}, {"ignore_args": True}),
    ),
    Peer(
        "eval_ai_library",
        "eval-ai-library==0.8.2",
        ({}, {"check_ordering": True}, {"exact_match": True}),
        takes_names=True,
    ),
    Peer(
        "strands",
        "strands-agents-evals==1.7.0",
        (
            {},
            {"scorer": "in_order_match_scorer"},
            {"scorer": "any_order_match_scorer"},
        ),
        takes_names=True,
    ),
)
"""The peers on PyPI. axion is on GitHub only; Galtea, Vertex and AgentCore are services; promptfoo is not a Python
package."""
