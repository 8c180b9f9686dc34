"""`goldspan serve`: the gateway between agents in any language and their back ends."""

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
  goldspan serve --config gateway.yaml --print-config\n
"""

_ACCESS_PANEL = "Access"
_TIMES_PANEL = "Times"
_SETTINGS_PANEL = "Settings"


def serve(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen on; 127.0.0.1. Any but this machine's needs tokens."),
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="OTLP/HTTP, API and /metrics; 4318. 0: one that is free.")
    ] = None,
    grpc_port: Annotated[int | None, typer.Option(metavar="PORT", help="OTLP/gRPC; 4317. 0: off.")] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the store and the journal; goldspan-data.")
    ] = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file, read again when it changes; may be repeated."
        ),
    ] = None,
    forward: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Hand everything on to this OTLP back end: http://, https://, grpc:// or grpcs://; may be repeated.",
        ),
    ] = None,
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KINDS",
            help="What back ends are told of evaluations: events, metrics, spans, attributes; events,metrics.",
        ),
    ] = None,
    enrich: Annotated[
        bool, typer.Option("--enrich", help="Hold traces until they are whole, and write results into their spans.")
    ] = False,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Processes that share the work; 1.")] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Tokens that may send, one a line.", rich_help_panel=_ACCESS_PANEL),
    ] = None,
    read_token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Tokens that may read, one a line.", rich_help_panel=_ACCESS_PANEL),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Let everybody in who reaches the address.", rich_help_panel=_ACCESS_PANEL),
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificate, PEM.", rich_help_panel=_ACCESS_PANEL)
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its private key, PEM.", rich_help_panel=_ACCESS_PANEL)
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name by which the gateway may be called; may be repeated.",
            rich_help_panel=_ACCESS_PANEL,
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Origin whose pages may use the gateway; may be repeated.",
            rich_help_panel=_ACCESS_PANEL,
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Wait so long for more of a trace after its root; 5.", rich_help_panel=_TIMES_PANEL
        ),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Score a trace without a root after so long; 30.", rich_help_panel=_TIMES_PANEL
        ),
    ] = None,
    late: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Late spans change a run for so long; 60.", rich_help_panel=_TIMES_PANEL),
    ] = None,
    keep_arguments: Annotated[
        bool,
        typer.Option("--keep-arguments", help="Store arguments, results and texts too.", rich_help_panel=_TIMES_PANEL),
    ] = False,
    keep_days: Annotated[
        float | None,
        typer.Option(metavar="DAYS", help="Delete stored runs after so long.", rich_help_panel=_TIMES_PANEL),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option(metavar="FORM", help="How the log is written: text or json.", rich_help_panel=_SETTINGS_PANEL),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Read settings from this file instead of goldspan.yaml.",
            rich_help_panel=_SETTINGS_PANEL,
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print all settings and where each was said.", rich_help_panel=_SETTINGS_PANEL
        ),
    ] = False,
    json_schema: Annotated[
        bool,
        typer.Option("--json-schema", help="Print the JSON Schema of goldspan.yaml.", rich_help_panel=_SETTINGS_PANEL),
    ] = False,
) -> None:
    """Take OpenTelemetry from agents in any language, hand it on, and score it on its way.

    Settings come from goldspan.yaml, variables such as GOLDSPAN_HTTP_PORT, and these flags; the later say more.

    Exit status: 0 it was told to stop and all ended well, 1 something did not, 2 the settings are wrong.
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
        "goldens": goldens,
        "forward": forward,
        "results": ",".join(results or ()),
        "enrich": enrich,
        "workers": workers,
        "token_file": token_file,
        "read_token_file": read_token_file,
        "insecure": insecure,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "allowed_hosts": allowed_host,
        "allowed_origins": allowed_origin,
        "grace": grace,
        "idle": idle,
        "late": late,
        "keep_arguments": keep_arguments,
        "keep_days": keep_days,
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
    from goldspan.gateway import server  # everything that serves

    return server.serve(settings)
