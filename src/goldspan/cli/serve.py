"""`goldspan serve`: runs the gateway between agents in any language and their back ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from goldspan.cli.console import stdout_console

if TYPE_CHECKING:
    from goldspan.gateway.settings.gateway_settings import GatewaySettings

EXAMPLES = """
Examples:\n
  goldspan serve --goldens goldens.yaml\n
  goldspan serve -g goldens.yaml --forward http://collector:4318 --results events,metrics\n
  goldspan serve --forward grpcs://otel.example:4317 --enrich --workers 4\n
  goldspan serve --host 0.0.0.0 --token-file tokens.txt --tls-cert cert.pem --tls-key key.pem\n
  goldspan serve --store postgresql://goldspan@db.example/goldspan --goldens goldens.yaml\n
  goldspan serve --kafka-brokers kafka-1:9092,kafka-2:9092 --kafka-topic otlp_spans\n
  goldspan serve --config gateway.yaml --print-config\n
"""

_ACCESS_PANEL = "Access"
_TIMES_PANEL = "Times"
_KAFKA_PANEL = "Kafka"
_SETTINGS_PANEL = "Settings"


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. Default: 127.0.0.1. Other than loopback addresses need tokens.",
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Port of OTLP/HTTP, the API and /metrics; 0 picks a free one. Default: 4318"),
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Port of OTLP/gRPC; 0 turns it off. Default: 4317")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the store and the journal. Default: goldspan-data")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Store runs in this PostgreSQL database, which several gateways can share: "
            "postgresql://user@host/database; PGPASSWORD has the password. Default: goldspan.db in the data folder",
        ),
    ] = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option("--goldens", "-g", metavar="FILE", help="Golden file; reloaded when it changes. May be repeated."),
    ] = None,
    forward: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Forward telemetry to this OTLP back end: http://, https://, grpc:// or grpcs://. May be repeated.",
        ),
    ] = None,
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KINDS",
            help="Results to send to back ends: events, metrics, spans, attributes. Default: events,metrics",
        ),
    ] = None,
    product: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Write scores to this product: phoenix, mlflow, or a name with an address: phoenix:https://host. "
            "Tokens are in the product's variables. May be repeated.",
        ),
    ] = None,
    enrich: Annotated[
        bool, typer.Option("--enrich", help="Hold each trace until it is complete, and add the results to its spans.")
    ] = False,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Number of worker processes. Default: 1")] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Tokens for sending telemetry, one per line.", rich_help_panel=_ACCESS_PANEL),
    ] = None,
    read_token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Tokens for reading results, one per line.", rich_help_panel=_ACCESS_PANEL),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Accept requests without a token.", rich_help_panel=_ACCESS_PANEL),
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="TLS certificate, PEM.", rich_help_panel=_ACCESS_PANEL)
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Private key of the certificate, PEM.", rich_help_panel=_ACCESS_PANEL),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Host name that requests may use. May be repeated.",
            rich_help_panel=_ACCESS_PANEL,
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Origin whose web pages may send requests. May be repeated.",
            rich_help_panel=_ACCESS_PANEL,
        ),
    ] = None,
    mcp: Annotated[
        bool,
        typer.Option(
            "--mcp",
            help="Let coding assistants read runs and goldens at /mcp, with a token for reading.",
            rich_help_panel=_ACCESS_PANEL,
        ),
    ] = False,
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Wait this long for more spans of a trace after its root span. Default: 5",
            rich_help_panel=_TIMES_PANEL,
        ),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Score a trace without a root span after this long without new spans. Default: 30",
            rich_help_panel=_TIMES_PANEL,
        ),
    ] = None,
    late: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Accept late spans of a scored run for this long. Default: 60",
            rich_help_panel=_TIMES_PANEL,
        ),
    ] = None,
    keep_arguments: Annotated[
        bool,
        typer.Option("--keep-arguments", help="Also store arguments, results and texts.", rich_help_panel=_TIMES_PANEL),
    ] = False,
    keep_days: Annotated[
        float | None,
        typer.Option(metavar="DAYS", help="Delete stored runs after this many days.", rich_help_panel=_TIMES_PANEL),
    ] = None,
    kafka_brokers: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESSES",
            help="Kafka brokers to read spans from: host:port, several separated by commas.",
            rich_help_panel=_KAFKA_PANEL,
        ),
    ] = None,
    kafka_topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Topic of the spans. Default: otlp_spans", rich_help_panel=_KAFKA_PANEL),
    ] = None,
    kafka_logs_topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Topic of the logs. Default: none", rich_help_panel=_KAFKA_PANEL),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option(metavar="FORM", help="Log format: text or json.", rich_help_panel=_SETTINGS_PANEL),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Settings file. Default: goldspan.yaml",
            rich_help_panel=_SETTINGS_PANEL,
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print all settings with the source of each, and exit.",
            rich_help_panel=_SETTINGS_PANEL,
        ),
    ] = False,
    json_schema: Annotated[
        bool,
        typer.Option(
            "--json-schema", help="Print the JSON Schema of goldspan.yaml, and exit.", rich_help_panel=_SETTINGS_PANEL
        ),
    ] = False,
) -> None:
    """Run a gateway: receive OpenTelemetry from agents in any language, forward it, and score the runs in it.

    Settings come from goldspan.yaml, from variables such as GOLDSPAN_HTTP_PORT, and from these options. Options take
    precedence over variables, and variables over the file.

    Exit status: 0 the gateway was stopped and ended cleanly, 1 it did not end cleanly, 2 a setting is wrong.
    """
    from goldspan.gateway.settings import settings_display, settings_loader

    if json_schema:
        stdout_console().write_line(json.dumps(settings_display.settings_json_schema(), indent=2, sort_keys=True))
        return
    flags = {
        "host": host,
        "http_port": http_port,
        "grpc_port": grpc_port,
        "data": data,
        "store": store,
        "goldens": goldens,
        "forward": forward,
        "results": ",".join(results or ()),
        "products": product,
        "enrich": enrich,
        "workers": workers,
        "token_file": token_file,
        "read_token_file": read_token_file,
        "insecure": insecure,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "allowed_hosts": allowed_host,
        "allowed_origins": allowed_origin,
        "mcp": mcp,
        "grace": grace,
        "idle": idle,
        "late": late,
        "keep_arguments": keep_arguments,
        "keep_days": keep_days,
        "kafka.brokers": kafka_brokers,
        "kafka.topic": kafka_topic,
        "kafka.logs_topic": kafka_logs_topic,
        "log_format": log_format,
    }
    settings = settings_loader.load_settings(config, {name: value for name, value in flags.items() if _is_given(value)})
    if print_config:
        stdout_console().write_line(settings_display.print_config(settings).rstrip("\n"))
        return
    raise typer.Exit(_run_gateway(settings))


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value not in ([], "")


def _run_gateway(settings: GatewaySettings) -> int:
    from goldspan.gateway import server  # deferred: imports the whole gateway

    return server.serve(settings)
