"""The settings of the gateway: one field per setting, with its meaning, default and validation.

Creating `GatewaySettings` reads neither file nor environment. `settings_loader.load_settings` reads both and reports
the location of every mistake.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from goldspan._extras import require_extra
from goldspan._http import BASE_URL_PATTERN
from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting.backends import Backend, parse_backends
from goldspan.gateway.kafka.kafka_settings import KafkaSettings
from goldspan.gateway.receivers.authorization import LOOPBACK_HOSTS, parse_tokens, read_token_file
from goldspan.gateway.resource_limits import PARTITION_COUNT, ResourceLimits
from goldspan.gateway.settings.kafka_config import KafkaConfig
from goldspan.gateway.settings.setting_types import (
    DEFAULT_ORIGIN,
    RESULT_OUTPUTS,
    BackEndList,
    CountOrOff,
    JsonObject,
    LimitsSection,
    NonNegativeSeconds,
    NumberOrOff,
    OptionalTextList,
    PortNumber,
    PositiveSeconds,
    PricePair,
    ProductList,
    ResultOutputList,
    SettingOrigin,
    SimilarityOrOff,
    TextList,
    ThresholdMap,
    UnitList,
    validation_error,
)
from goldspan.goldens.lookup.golden_lookup import DEFAULT_MARGIN, DEFAULT_NEAR
from goldspan.goldens.spelling import join_words
from goldspan.judge.judge import DEFAULT_DAILY_TOKENS, DEFAULT_SAMPLE, JudgeSettings
from goldspan.judge.model_endpoint import OPENAI_BASE_URL, AnswerForm, parse_api_key
from goldspan.judge.prompts import CallDetail
from goldspan.judge.tool_selection import Combination
from goldspan.model import UnknownPolicy

with require_extra("server"):
    from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, model_validator
    from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

STORE_FILE = "goldspan.db"
"""Name of the store in the data folder."""
JUDGE_CACHE_FILE = "judge.db"
"""Name of the judge's cache file in the data folder."""

_Fraction = Annotated[float, Field(ge=0, le=1)]
_PositiveCount = Annotated[int, Field(ge=1)]


class JudgeConfig(BaseModel):
    """A model that judges whether the called tools were the best choice."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    model: Annotated[str, Field(min_length=1)] | None = None
    """Name of the model; null: no model is asked, and the other settings of the judge have no effect."""
    url: str = OPENAI_BASE_URL
    """Base URL of the OpenAI-compatible endpoint of the model."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """API key, preferably set by the variable GOLDSPAN_JUDGE_API_KEY; null: OPENAI_API_KEY at OpenAI, else none."""
    sample: _Fraction = DEFAULT_SAMPLE
    """Share of the runs that are judged, 0 to 1."""
    combination: Combination = "apart"
    """min: tool_correctness becomes the lower of both scores; apart: it does not change."""
    threshold: _Fraction | None = None
    """Threshold of tool_selection; null: only the thresholds of goldens apply."""
    votes: _PositiveCount = 1
    """Number of times the model is asked about a run; the median is the score."""
    temperature: NumberOrOff = 0.0
    """Sampling temperature; off: none is sent."""
    seed: CountOrOff = 0
    """Sampling seed; off: none is sent."""
    show: CallDetail = "all"
    """What the model sees of tool calls: names, arguments (names and arguments), or all (also results)."""
    explain: bool = False
    """Whether reasons contain the text of the model, which may repeat content of the run."""
    timeout: PositiveSeconds = 30.0
    """Seconds for all votes about one run."""
    concurrency: _PositiveCount = 4
    """Runs that each worker judges at the same time."""
    daily_tokens: CountOrOff = DEFAULT_DAILY_TOKENS
    """Tokens that all workers together may use within 24 hours; off: no limit."""
    daily_cost: NonNegativeSeconds | None = None
    """US dollars that all workers together may spend within 24 hours; requires prices; null: no limit."""
    prices: PricePair = None
    """US dollars for one million input tokens and output tokens, such as 0.25,2."""
    cache: Path | None = None
    """SQLite file that stores answers and spending; null: judge.db in the data folder."""
    answer_form: AnswerForm = "json_schema"
    """Response format that is requested; json_object or text for an endpoint without schema support."""
    max_tokens: _PositiveCount = 1000
    """Maximum number of tokens of an answer."""
    extra: JsonObject = None
    """Additional members of each request, such as reasoning_effort; a JSON object in a variable."""

    @model_validator(mode="after")
    def _validate(self) -> JudgeConfig:
        if not BASE_URL_PATTERN.fullmatch(self.url):
            raise validation_error("must look like https://api.openai.com/v1; keys belong in api_key", "url")
        try:
            parse_api_key(self.api_key.get_secret_value() if self.api_key else None)
        except ConfigurationError:
            raise validation_error("contains characters that are not allowed in an API key", "api_key") from None
        if self.daily_cost is not None and self.prices is None:
            raise validation_error("requires prices: the cost of one million tokens", "daily_cost")
        return self

    @property
    def endpoint_host(self) -> str:
        """Host and port of the model endpoint."""
        return urlsplit(self.url).netloc

    def to_judge_settings(self, data_folder: Path) -> JudgeSettings | None:
        """Returns the settings of the judge, or `None` if no model is set."""
        if self.model is None:
            return None
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(JudgeSettings)}
        values["api_key"] = self.api_key.get_secret_value() if self.api_key else None
        return JudgeSettings(**values | {"cache": self.cache or data_folder / JUDGE_CACHE_FILE})


class TelemetryConfig(BaseModel):
    """Export of the gateway's own metrics over OTLP, in addition to `/metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    endpoint: str | None = None
    """URL of an OTLP/HTTP endpoint; `/v1/metrics` is appended; null: metrics are not exported."""
    interval: PositiveSeconds = 60.0
    """Seconds between two exports."""
    headers: dict[str, SecretStr] = Field(default={}, repr=False)
    """Headers of the export requests."""

    @model_validator(mode="after")
    def _validate(self) -> TelemetryConfig:
        if self.endpoint is not None and not re.fullmatch(r"https?://[^\s@/?#]+(/[^\s@?#]*)?", self.endpoint):
            raise validation_error(
                "must look like http://collector:4318; passwords and keys belong in headers", "endpoint"
            )
        return self


class GatewaySettings(BaseSettings):
    """Settings of `goldspan serve`. Flags override environment variables, which override goldspan.yaml."""

    model_config = SettingsConfigDict(
        title="goldspan.yaml",
        env_prefix="GOLDSPAN_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        enable_decoding=False,  # lists are comma-separated, not JSON
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on. An address other than loopback requires tokens or `insecure`."""
    http_port: PortNumber = 4318
    """Port of OTLP/HTTP, the API, `/metrics`, `/healthz` and `/readyz`; 0: any free port."""
    grpc_port: PortNumber = 4317
    """Port of OTLP/gRPC; 0: off."""
    data: Path = Path("goldspan-data")
    """Folder of the journal, and of the store unless `store` is set. Only one gateway may use it at a time."""
    store: Annotated[str, Field(min_length=1)] | None = Field(default=None, repr=False)
    """Where runs are stored: a file, or the URL of a PostgreSQL database that several gateways can share, such as
    postgresql://user@host/database, preferably with the password in the variable PGPASSWORD; requires the extra
    postgres; null: goldspan.db in the data folder."""
    goldens: TextList = ()
    """Golden files. The gateway reloads them when they change."""
    forward: BackEndList = ()
    """OTLP back ends that all telemetry is forwarded to: URLs, or mappings with an endpoint, headers and more."""
    results: ResultOutputList = ()
    """How results are exported to back ends: events, metrics, spans, attributes (on the forwarded spans). Default
    with a back end: events and metrics."""
    enrich: bool = False
    """Hold each trace until it is complete and add results to its spans; same as `attributes` in `results`."""
    products: ProductList = ()
    """Products that scores are written to, such as phoenix, mlflow or phoenix:https://host; tokens are in variables."""
    workers: Annotated[int, Field(ge=1, le=PARTITION_COUNT)] = 1
    """Number of worker processes."""
    tls_cert: Path | None = None
    """PEM file with the certificate; if set, HTTP and gRPC use TLS only."""
    tls_key: Path | None = None
    """PEM file with the private key."""
    token_file: Path | None = None
    """File with the bearer tokens that may send telemetry, one per line; lines that start with # are comments."""
    read_token_file: Path | None = None
    """File with the bearer tokens that may read runs, evaluations and metrics."""
    token: SecretStr | None = None
    """Additional tokens that may send, one per line; preferably set by the variable GOLDSPAN_TOKEN."""
    read_token: SecretStr | None = None
    """Additional tokens that may read, one per line; preferably set by the variable GOLDSPAN_READ_TOKEN."""
    insecure: bool = False
    """Listen on an address other than loopback without tokens: every client that can connect has full access."""
    allowed_hosts: TextList = ()
    """Additional host names that the header Host may have, without ports."""
    allowed_origins: TextList = ()
    """Origins of web pages that may call the gateway, such as https://grafana.example."""
    mcp: bool = False
    """Whether coding assistants can read runs and goldens at `/mcp`, with a token that may read; requires the extra
    mcp."""
    grace: NonNegativeSeconds = 5.0
    """Seconds without a span after which a trace with a root span is scored."""
    idle: PositiveSeconds = 30.0
    """Seconds without a span after which a trace without a root span is scored."""
    late: NonNegativeSeconds = 60.0
    """Seconds for which late spans can change a scored run."""
    lifetime: PositiveSeconds = 3600.0
    """Seconds after which a trace is scored even if spans still arrive."""
    units: UnitList = ("request", "component")
    """Units that are scored: request, component, conversation."""
    metrics: OptionalTextList = None
    """Names of metrics; null: all."""
    thresholds: ThresholdMap = {}
    """Thresholds by metric name, in addition to those of the goldens."""
    unknown: UnknownPolicy | None = None
    """Verdict of a run if an expectation of its golden cannot be evaluated: not_evaluated, ignore (the other
    expectations decide) or fail; null: as the goldens define it."""
    golden_id_attributes: OptionalTextList = None
    """Span attributes that contain a golden id, in order of precedence; null: goldspan.golden.id, test.case.name."""
    near: SimilarityOrOff = DEFAULT_NEAR
    """Minimum similarity, 0 to 100, of a request's text to the text of its golden; off: no fuzzy matching."""
    margin: NonNegativeSeconds = DEFAULT_MARGIN
    """How much more similar the best golden must be than any other."""
    budget: PositiveSeconds | None = None
    """Seconds for the metrics of one run; null: no limit."""
    keep_arguments: bool = False
    """Also store values: arguments, results, error messages, outputs and metadata."""
    keep_days: PositiveSeconds | None = None
    """Days after which stored runs are deleted; null: never."""
    max_store_bytes: Annotated[int, Field(ge=1)] | None = None
    """Maximum size of the store; the oldest runs are deleted first; null: no limit."""
    limits: LimitsSection = ResourceLimits()
    """Limits of sizes, counts and times."""
    judge: JudgeConfig = JudgeConfig()
    """A model that judges the choice of tools, and its budget."""
    kafka: KafkaConfig = KafkaConfig()
    """Topics of Kafka that are scored, and the topic of the results; requires the extra kafka."""
    drain_seconds: NonNegativeSeconds = 10.0
    """Seconds that pending work may take during shutdown."""
    log_format: Literal["text", "json"] = "text"
    """Format of the log on standard error."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of the log."""
    telemetry: TelemetryConfig = TelemetryConfig()
    """Export of the gateway's own metrics over OTLP."""

    _origins: dict[str, SettingOrigin] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Uses only the arguments, which `settings_loader.load_settings` merges."""
        return (init_settings,)

    @model_validator(mode="after")
    def _validate_results(self) -> GatewaySettings:
        if self.results and not self.forward:
            raise validation_error(f"{join_words(self.results)} require a back end: set forward", "results")
        if self.enrich and not self.forward:
            raise validation_error("requires a back end: set forward", "enrich")
        results = self.results or (("events", "metrics") if self.forward else ())
        if "attributes" in results and "enrich" in self.model_fields_set and not self.enrich:
            raise validation_error("contradicts attributes in results; remove one of them", "enrich")
        if self.enrich:
            results = (*results, "attributes")
        outputs = tuple(output for output in RESULT_OUTPUTS if output in results)
        self.__dict__.update(results=outputs, enrich="attributes" in outputs)  # frozen, but not returned yet
        return self

    @model_validator(mode="after")
    def _validate_access(self) -> GatewaySettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            present, missing = ("tls_cert", "tls_key") if self.tls_key is None else ("tls_key", "tls_cert")
            raise validation_error(f"requires {missing}", present)
        if self.grpc_port and self.grpc_port == self.http_port:
            raise validation_error(f"HTTP and gRPC cannot share port {self.grpc_port}", "grpc_port")
        tokens = self.token_file or self.token or self.read_token_file or self.read_token
        if not (self.is_loopback or tokens or self.insecure):
            raise validation_error(
                f"{self.host} is reachable from other machines and no tokens are set: set token_file (--token-file or "
                "GOLDSPAN_TOKEN), or allow access without tokens with insecure (--insecure)",
                "host",
            )
        for origin in self.allowed_origins:
            if not re.fullmatch(r"https?://[^\s/*]+", origin):
                raise validation_error("an origin must look like https://grafana.example", "allowed_origins")
        return self

    @model_validator(mode="after")
    def _validate_back_ends(self) -> GatewaySettings:
        ports = {port for port in (self.http_port, self.grpc_port) if port}
        own = (
            {self.host.lower(), *LOOPBACK_HOSTS}
            if self.is_loopback or self._is_on_all_interfaces
            else {self.host.lower()}
        )
        for host, port in (back_end.address for back_end in self.back_ends):
            if host in own and port in ports:
                raise validation_error(
                    f"{host}:{port} is this gateway itself, which would forward in a loop", "forward"
                )
        return self

    @property
    def _is_on_all_interfaces(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")

    @property
    def store_location(self) -> str | Path:
        """The file or the URL of the store."""
        return self.store or self.data / STORE_FILE

    @property
    def is_loopback(self) -> bool:
        """Whether the gateway listens on a loopback address."""
        if self.host.lower() in LOOPBACK_HOSTS:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def host_names(self) -> frozenset[str] | None:
        """The allowed values of the header Host; `None`: any, because the host names are not known."""
        if not (self.is_loopback or self.allowed_hosts):
            return None
        return LOOPBACK_HOSTS | {self.host, *self.allowed_hosts}

    @property
    def back_ends(self) -> tuple[Backend, ...]:
        """The back ends that all telemetry is forwarded to."""
        return parse_backends(self.forward)

    @property
    def ingest_tokens(self) -> tuple[str, ...]:
        """The tokens that may send telemetry. Raises `ConfigurationError` for a file that cannot be read."""
        return self._read_tokens("token_file", "token")

    @property
    def read_tokens(self) -> tuple[str, ...]:
        """The tokens that may read. Raises `ConfigurationError` for a file that cannot be read."""
        return self._read_tokens("read_token_file", "read_token")

    def kafka_settings(self, worker: int = 0) -> KafkaSettings | None:
        """Returns the Kafka settings of a worker, or `None` if no brokers are set.

        Raises `ConfigurationError` for a file of options that cannot be read.
        """
        settings = self.kafka.to_kafka_settings()
        return None if settings is None else settings.for_worker(worker, self.workers)

    def origin_of(self, path: str) -> SettingOrigin:
        """Returns where the value of a field such as `limits.max_spans` was set."""
        return self._origins.get(path, DEFAULT_ORIGIN)

    def location_of(self, path: str) -> str:
        """Returns the location of a field for error messages."""
        return self.origin_of(path).describe_location(path)

    def _read_tokens(self, file_field: str, field: str) -> tuple[str, ...]:
        path: Path | None = getattr(self, file_field)
        value: SecretStr | None = getattr(self, field)
        found = read_token_file(path, self.location_of(file_field)) if path else []
        found += parse_tokens(value.get_secret_value(), self.location_of(field)) if value else []
        return tuple(dict.fromkeys(found))
