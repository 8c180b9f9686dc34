"""Whether the tools that were called were the best choice: a question for a model, asked beside the comparison.

    from goldspan.judge import Judge, ModelEndpoint, judged

    judge = Judge(ModelEndpoint("gpt-4.1-mini", api_key=...), cache="judge.db")
    for evaluation in judged(evaluations, judge):
        print(evaluation.score("tool_selection"))

`ModelEndpoint` needs the extra `judge`; a function of one's own does not.
"""

from __future__ import annotations

from goldspan.judge.background_judge import BackgroundJudge, judge_evaluations
from goldspan.judge.judge import AskFunction, Judge, ModelClient
from goldspan.judge.judge_session import open_session
from goldspan.judge.model_endpoint import ModelEndpoint
from goldspan.judge.model_replies import Assessment, ModelReply, ModelRequestError
from goldspan.judge.prompts import JudgePrompt
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
