"""Whether the tools that were called were the best choice: a question for a model, asked beside the comparison.

    from goldspan.judge import Judge, ModelEndpoint, judged

    judge = Judge(ModelEndpoint("gpt-4.1-mini", api_key=...), cache="judge.db")
    for evaluation in judged(evaluations, judge):
        print(evaluation.score("tool_selection"))

`ModelEndpoint` needs the extra `judge`; a function of one's own does not.
"""

from __future__ import annotations

from goldspan.judge.answers import Answer, AskingError
from goldspan.judge.background import BackgroundJudge
from goldspan.judge.batches import judged
from goldspan.judge.budget import Budget, Prices
from goldspan.judge.counting import Usage
from goldspan.judge.endpoint import ModelEndpoint
from goldspan.judge.judges import Ask, Asker, Judge
from goldspan.judge.opinions import Opinion
from goldspan.judge.questions import Question
from goldspan.judge.sessions import session_of

__all__ = [
    "Answer",
    "Ask",
    "Asker",
    "AskingError",
    "BackgroundJudge",
    "Budget",
    "Judge",
    "ModelEndpoint",
    "Opinion",
    "Prices",
    "Question",
    "Usage",
    "judged",
    "session_of",
]
