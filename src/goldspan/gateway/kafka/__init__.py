"""Scores the spans that the Collector's Kafka exporter writes. Needs the extra `kafka`.

Kafka keeps the messages, so nothing of them goes to the journal. Each partition of the topic is a log of its own, with
its own trace buffer: the evaluation of a trace does not depend on which worker reads it.

Read in this order:

- ``kafka_settings``: the brokers, topics and librdkafka options of the clients.
- ``kafka_clients``: creates consumers and producers.
- ``kafka_worker``: the clients of one worker, opened and closed together.
- ``message_decoding``: decodes messages into log entries, and splits them by trace.
- ``partition_log``: the log of one partition, which scoring reads.
- ``start_points``: finds where to begin to read an assigned partition.
- ``receiver``: consumes the topic, scores its partitions and commits offsets.
- ``message_reader``: reads single messages again.
- ``connection_state``: whether the brokers can be reached.
- ``reliable_producer``: produces messages until the brokers have stored them.
- ``results_topic``: the sink that writes evaluations to a compacted topic.
- ``repartitioner``: copies messages without a key, and logs, to a topic keyed by trace id.
- ``topics``: creates the topics of goldspan that do not exist.
"""
