"""Reads, validates and displays the settings of the gateway.

- ``gateway_settings``: one field per setting, with its meaning, default and validation.
- ``kafka_config``: the settings of Kafka.
- ``setting_types``: the types of the fields, and how each is written in a file, a variable or a flag.
- ``settings_loader``: merges file, environment and flags, and reports every mistake with its location.
- ``settings_display``: prints the settings, their JSON Schema and the lines logged at startup.
"""
