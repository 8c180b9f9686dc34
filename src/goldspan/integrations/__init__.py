"""Writes scores into the products that teams already use.

Modules in reading order:

- ``scored_runs``: `ScoredRun`, what is sent about one evaluated run.
- ``product``: `Product`, how scores are written into one product.
- ``http_client``: `ProductClient` sends requests, and `DeliveryError` says what a failure means.
- ``score_delivery``: `ScoreDelivery` writes runs and classifies what could not be written.
- ``product_sink``: `ProductSink` delivers evaluations from a bounded queue, on a thread of its own.
- ``delivery_log``: `DeliveryLog` remembers which runs were written, so that a backfill can continue.
- ``backfill``: `Backfill` writes runs one after another for the commands, and `preview` shows the requests.
- ``phoenix``, ``mlflow``, ``langfuse``, ``datadog``, ``opik``, ``braintrust``, ``langsmith``: the products.
- ``catalog``: `create_product` returns the product of a name such as `phoenix:https://host`.
"""
