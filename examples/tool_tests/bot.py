"""The agent that test_tools.py tests. A framework's agent takes the place of `answer`."""

import re

import goldspan


@goldspan.trace
def find_order(order_id: int) -> dict[str, int]:
    return {"order_id": order_id, "euros": 500 if order_id > 100 else 30}


@goldspan.trace
def ask_for_approval(order_id: int, euros: int) -> bool:
    return True


@goldspan.trace
def refund(order_id: int, euros: int) -> str:
    return f"refunded {euros} euros"


@goldspan.trace
def send_email(text: str) -> None: ...


def answer(request: str) -> str:
    """Decide as a model would, by keywords."""
    order_id = re.search(r"\d+", request)
    if order_id is None:
        return "Which order?"
    order = find_order(int(order_id[0]))
    if "money back" not in request:
        return f"Order {order['order_id']} cost {order['euros']} euros."
    if order["euros"] > 100 and "manager" not in request:  # a mistake: whoever mentions a manager needs no approval
        ask_for_approval(**order)
    done = refund(**order)
    send_email(done)
    return done
