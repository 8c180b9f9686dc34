"""Asks a model whether the called tools were the best choice, beside the deterministic comparison.

    from goldspan.judge import Judge, ModelEndpoint, judge_evaluations

    judge = Judge(ModelEndpoint("gpt-4.1-mini", api_key=...), cache="judge.db")
    for evaluation in judge_evaluations(evaluations, judge):
        print(evaluation.score("tool_selection"))

`ModelEndpoint` needs the extra `judge`; a custom function does not.

- ``judge``: `Judge`, its parameters, and the settings from which commands create one.
- ``judge_session``: judges evaluations in one event loop: votes, retries, deadlines, budget.
- ``background_judge``: judges evaluations on a thread, in batches or in a running application.
- ``prompts``: builds the prompt for a run.
- ``model_endpoint``: sends a prompt to an OpenAI-compatible endpoint.
- ``tool_selection``: parses the answers, turns the votes into a score and merges it into the evaluation.
- ``cache``: stores answers and spending in an SQLite file.
- ``usage``: counts requests, tokens and cost; budgets and prices.
"""

from __future__ import annotations

from goldspan.judge.background_judge import BackgroundJudge, judge_evaluations
from goldspan.judge.judge import AskFunction, Judge, ModelClient
from goldspan.judge.judge_session import open_session
from goldspan.judge.model_endpoint import ModelEndpoint
from goldspan.judge.prompts import JudgePrompt
from goldspan.judge.tool_selection import Assessment, ModelReply, ModelRequestError
from goldspan.judge.usage import Budget, Prices, Usage

__all__ = [
    "AskFunction",
    "Assessment",
    "BackgroundJudge",
    "Budget",
    "Judge",
    "JudgePrompt",
    "ModelClient",
    "ModelEndpoint",
    "ModelReply",
    "ModelRequestError",
    "Prices",
    "Usage",
    "judge_evaluations",
    "open_session",
]
