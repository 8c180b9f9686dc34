"""What the gateway can be told: one field each, with its meaning, its default and what cannot be.

Making `Settings` reads neither file nor environment: `configuration.load` does, and names the place of every mistake.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

from goldspan.gateway.doors.authority import LOOPBACK_HOSTS
from goldspan.gateway.extra import needed
from goldspan.gateway.forwarding.backends import BackEnd, parse_backends
from goldspan.gateway.limits import Limits
from goldspan.gateway.settings.judging import Judge
from goldspan.gateway.settings.kinds import (
    OUTLETS,
    BackEnds,
    Bounds,
    Outlets,
    PerhapsNoSeconds,
    PerhapsTexts,
    Port,
    Seconds,
    Similarity,
    Texts,
    Thresholds,
    Units,
    mistake,
)
from goldspan.gateway.settings.origins import DEFAULT, Origin
from goldspan.gateway.settings.tokens import tokens_in, tokens_in_file
from goldspan.gateway.signals import PARTITIONS
from goldspan.goldens.lookup import MARGIN, NEAR
from goldspan.goldens.words import listed
from goldspan.model import Unknown

with needed():
    from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, model_validator
    from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class Telemetry(BaseModel):
    """Where the gateway sends its own figures, beside `/metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    endpoint: str | None = None
    """URL of an OTLP/HTTP end point, to which `/v1/metrics` is appended; null: they are not sent."""
    interval: Seconds = 60.0
    """Seconds from one time to the next."""
    headers: dict[str, SecretStr] = Field(default={}, repr=False)
    """Headers of these requests."""

    @model_validator(mode="after")
    def _check(self) -> Telemetry:
        if self.endpoint is not None and not re.fullmatch(r"https?://[^\s@/?#]+(/[^\s@?#]*)?", self.endpoint):
            raise mistake("is written as http://collector:4318; passwords and keys go into headers", "endpoint")
        return self


class Settings(BaseSettings):
    """Settings of `goldspan serve`: goldspan.yaml, below variables of the environment, below flags."""

    model_config = SettingsConfigDict(
        title="goldspan.yaml",
        env_prefix="GOLDSPAN_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        enable_decoding=False,  # lists are written with commas, not in JSON
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs tokens, or `insecure`."""
    http_port: Port = 4318
    """Port of OTLP/HTTP, the API, `/metrics`, `/healthz` and `/readyz`; 0: one that is free."""
    grpc_port: Port = 4317
    """Port of OTLP/gRPC; 0: off."""
    data: Path = Path("goldspan-data")
    """Folder of the store and the journal. One gateway works on it at a time."""
    goldens: Texts = ()
    """Golden files. They are read again when they change."""
    forward: BackEnds = ()
    """OTLP back ends that everything is handed on to: URLs, or mappings with an endpoint, headers and more."""
    results: Outlets = ()
    """What back ends are told of evaluations: events, metrics, spans, attributes of the spans that are handed on.
    Where there is a back end and nothing is said: events and metrics."""
    enrich: bool = False
    """Hold each trace until it is whole and write results into its spans: the same as `attributes` in `results`."""
    workers: Annotated[int, Field(ge=1, le=PARTITIONS)] = 1
    """Processes that share the work."""
    tls_cert: Path | None = None
    """PEM file with the certificate; with it, HTTP and gRPC are served over TLS only."""
    tls_key: Path | None = None
    """PEM file with its private key."""
    token_file: Path | None = None
    """File with the bearer tokens that may send telemetry, one a line; lines that begin with # are comments."""
    read_token_file: Path | None = None
    """File with the bearer tokens that may read: runs, evaluations, figures."""
    token: SecretStr | None = None
    """Further tokens that may send, one a line; best said by the variable GOLDSPAN_TOKEN."""
    read_token: SecretStr | None = None
    """Further tokens that may read, one a line; best said by the variable GOLDSPAN_READ_TOKEN."""
    insecure: bool = False
    """Listen on another address than this machine's own without tokens: everybody who reaches it may do everything."""
    allowed_hosts: Texts = ()
    """Further names by which the gateway may be called (the header Host), without ports."""
    allowed_origins: Texts = ()
    """Origins of browsers whose pages may use the gateway, such as https://grafana.example."""
    grace: PerhapsNoSeconds = 5.0
    """Seconds that a trace whose root has come waits for more of its spans, after the last one."""
    idle: Seconds = 30.0
    """Seconds without a span after which a trace without a root is scored as it is."""
    late: PerhapsNoSeconds = 60.0
    """Seconds for which late spans can change a run that was scored."""
    lifetime: Seconds = 3600.0
    """Seconds after which a trace is scored as it is, however busy."""
    units: Units = ("request", "component")
    """What is scored: request, component, conversation."""
    metrics: PerhapsTexts = None
    """Names of metrics; null: all."""
    thresholds: Thresholds = {}
    """What a metric must reach, by its name, beside those of the goldens."""
    unknown: Unknown | None = None
    """What becomes of a run of which something that its golden states cannot be judged: not_evaluated, ignore (the rest
    decides) or fail; null: as the goldens say."""
    golden_id_attributes: PerhapsTexts = None
    """Span attributes that name a golden, in the order tried; null: goldspan.golden.id, test.case.name."""
    near: Similarity = NEAR
    """From which similarity on, 0 to 100, a request's text is that of a golden; or off."""
    margin: PerhapsNoSeconds = MARGIN
    """How much nearer that golden must be than any other."""
    budget: Seconds | None = None
    """Seconds that the metrics of one run may take; null: no limit."""
    keep_arguments: bool = False
    """Store values too: arguments, results, texts of errors, outputs and metadata."""
    keep_days: Seconds | None = None
    """Days after which stored runs are deleted; null: they are kept."""
    max_store_bytes: Annotated[int, Field(ge=1)] | None = None
    """What the store's file may hold: the oldest runs go first; null: no limit."""
    limits: Bounds = Limits()
    """How much the gateway takes, keeps and waits for."""
    judge: Judge = Judge()
    """A model that is asked whether the tools were the best choice, and how much that may cost."""
    drain_seconds: PerhapsNoSeconds = 10.0
    """Seconds that work in hand may take after the gateway was told to stop."""
    log_format: Literal["text", "json"] = "text"
    """How the log is written, which goes to standard error."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on the log is written."""
    telemetry: Telemetry = Telemetry()
    """Where the gateway sends its own figures, and how often."""

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but the arguments: `configuration.load` puts those together."""
        return (init_settings,)

    @model_validator(mode="after")
    def _check_outlets(self) -> Settings:
        if self.results and not self.forward:
            raise mistake(f"{listed(self.results)} need a back end to go to: name one with forward", "results")
        if self.enrich and not self.forward:
            raise mistake("there are no spans to enrich without a back end: name one with forward", "enrich")
        results = self.results or (("events", "metrics") if self.forward else ())
        if "attributes" in results and "enrich" in self.model_fields_set and not self.enrich:
            raise mistake("results has attributes, which is to enrich; leave one of them out", "enrich")
        if self.enrich:
            results = (*results, "attributes")
        chosen = tuple(outlet for outlet in OUTLETS if outlet in results)
        self.__dict__.update(results=chosen, enrich="attributes" in chosen)  # nobody has seen it yet
        return self

    @model_validator(mode="after")
    def _check_access(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            given, other = ("tls_cert", "tls_key") if self.tls_key is None else ("tls_key", "tls_cert")
            raise mistake(f"needs {other} beside it", given)
        if self.grpc_port and self.grpc_port == self.http_port:
            raise mistake(f"HTTP and gRPC cannot share port {self.grpc_port}", "grpc_port")
        tokens = self.token_file or self.token or self.read_token_file or self.read_token
        if not (self.on_loopback or tokens or self.insecure):
            raise mistake(
                f"{self.host} can be reached from elsewhere, and no token is asked: name a file of tokens with "
                "token_file (--token-file, or GOLDSPAN_TOKEN), or let everybody in with insecure (--insecure)",
                "host",
            )
        for origin in self.allowed_origins:
            if not re.fullmatch(r"https?://[^\s/*]+", origin):
                raise mistake("an origin is written as https://grafana.example", "allowed_origins")
        return self

    @model_validator(mode="after")
    def _check_back_ends(self) -> Settings:
        ports = {port for port in (self.http_port, self.grpc_port) if port}
        own = {self.host.lower(), *LOOPBACK_HOSTS} if self.on_loopback or self._is_everywhere else {self.host.lower()}
        for host, port in (back_end.address for back_end in self.back_ends):
            if host in own and port in ports:
                raise mistake(f"{host}:{port} is this gateway itself, so that everything would come again", "forward")
        return self

    @property
    def _is_everywhere(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the gateway."""
        if self.host.lower() in LOOPBACK_HOSTS:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def hosts(self) -> frozenset[str] | None:
        """What may stand in the header Host; `None`: anything, where the names of this machine are not known."""
        if not (self.on_loopback or self.allowed_hosts):
            return None
        return LOOPBACK_HOSTS | {self.host, *self.allowed_hosts}

    @property
    def back_ends(self) -> tuple[BackEnd, ...]:
        """The back ends that everything is handed on to."""
        return parse_backends(self.forward)

    @property
    def ingest_tokens(self) -> tuple[str, ...]:
        """The tokens that may send telemetry. Raises `ConfigurationError` for a file that cannot be read."""
        return self._tokens("token_file", "token")

    @property
    def read_tokens(self) -> tuple[str, ...]:
        """The tokens that may read. Raises `ConfigurationError` for a file that cannot be read."""
        return self._tokens("read_token_file", "read_token")

    def origin(self, path: str) -> Origin:
        """Where the value of a field such as `limits.max_spans` was said."""
        return self._origins.get(path, DEFAULT)

    def place(self, path: str) -> str:
        """How an error names that field."""
        return self.origin(path).place(path)

    def _tokens(self, file_field: str, field: str) -> tuple[str, ...]:
        path: Path | None = getattr(self, file_field)
        said: SecretStr | None = getattr(self, field)
        found = tokens_in_file(path, self.place(file_field)) if path else []
        found += tokens_in(said.get_secret_value(), self.place(field)) if said else []
        return tuple(dict.fromkeys(found))
