"""What the gateway can be told: one field each, with its meaning, its default and what cannot be.

Making `Settings` reads neither file nor environment: `configuration.load` does, and names the place of every mistake.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from goldspan._extras import require_server_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting.backends import Backend, parse_backends
from goldspan.gateway.receivers.authorization import LOOPBACK_HOSTS, parse_tokens, read_token_file
from goldspan.gateway.resource_limits import PARTITION_COUNT, ResourceLimits
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
from goldspan.judge.model_endpoint import BASE_URL_PATTERN, OPENAI_BASE_URL, AnswerForm, parse_api_key
from goldspan.judge.prompts import CallDetail
from goldspan.judge.tool_selection import Combination
from goldspan.model import UnknownPolicy

with require_server_extra():
    from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

JUDGE_CACHE_FILE = "judge.db"
"""What the file of answers is called in the data folder."""

_Fraction = Annotated[float, Field(ge=0, le=1)]
_PositiveCount = Annotated[int, Field(ge=1)]


class JudgeConfig(BaseModel):
    """A model that is asked whether the tools that were called were the best choice."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    model: Annotated[str, Field(min_length=1)] | None = None
    """The model that is asked; null: none is, and all else here means nothing."""
    url: str = OPENAI_BASE_URL
    """Base URL of the OpenAI-compatible endpoint where that model is."""
    api_key: SecretStr | None = Field(default=None, repr=False)
    """Its key, best said by the variable GOLDSPAN_JUDGE_API_KEY; null: OPENAI_API_KEY for OpenAI's own, else none."""
    sample: _Fraction = DEFAULT_SAMPLE
    """Which share of the runs it is asked about, 0 to 1."""
    combination: Combination = "apart"
    """min: tool_correctness becomes the lower of both; apart: it stays."""
    threshold: _Fraction | None = None
    """What tool_selection must reach; null: only what goldens ask for."""
    votes: _PositiveCount = 1
    """How often it is asked about a run; the median counts."""
    temperature: NumberOrOff = 0.0
    """The temperature it is asked with; or off: none is sent."""
    seed: CountOrOff = 0
    """The seed it is asked with; or off: none is sent."""
    show: CallDetail = "all"
    """What it is shown of calls: names, also arguments, or all with results."""
    explain: bool = False
    """Whether reasons have the model's own words, which may repeat what is in the run."""
    timeout: PositiveSeconds = 30.0
    """Seconds that all votes about a run may take."""
    concurrency: _PositiveCount = 4
    """Runs that each worker asks about at once."""
    daily_tokens: CountOrOff = DEFAULT_DAILY_TOKENS
    """Tokens that all workers together may spend within 24 hours; or off: no limit."""
    daily_cost: NonNegativeSeconds | None = None
    """US dollars that they may; needs the prices; null: no limit."""
    prices: PricePair = None
    """US dollars for a million tokens of questions and of answers, such as 0.25,2."""
    cache: Path | None = None
    """SQLite file in which answers, and what was spent, are kept; null: judge.db in the data folder."""
    answer_form: AnswerForm = "json_schema"
    """How the form of an answer is asked for; json_object or text for an endpoint that knows no schemas."""
    max_tokens: _PositiveCount = 1000
    """How many tokens an answer may have."""
    extra: JsonObject = None
    """Further members of each request, such as reasoning_effort; in a variable as a JSON object."""

    @model_validator(mode="after")
    def _validate(self) -> JudgeConfig:
        if not BASE_URL_PATTERN.fullmatch(self.url):
            raise validation_error("is written as https://api.openai.com/v1; keys go into api_key", "url")
        try:
            parse_api_key(self.api_key.get_secret_value() if self.api_key else None)
        except ConfigurationError:
            raise validation_error("holds characters that no key has", "api_key") from None
        if self.daily_cost is not None and self.prices is None:
            raise validation_error("needs prices beside it: what a million tokens cost", "daily_cost")
        return self

    @property
    def endpoint_host(self) -> str:
        """Where what is shown to the model goes."""
        return urlsplit(self.url).netloc

    def to_judge_settings(self, data_folder: Path) -> JudgeSettings | None:
        """All of it as the judge takes it; `None`: there is none."""
        if self.model is None:
            return None
        said: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(JudgeSettings)}
        said["api_key"] = self.api_key.get_secret_value() if self.api_key else None
        return JudgeSettings(**said | {"cache": self.cache or data_folder / JUDGE_CACHE_FILE})


with require_server_extra():
    from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, model_validator
    from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class TelemetryConfig(BaseModel):
    """Where the gateway sends its own figures, beside `/metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    endpoint: str | None = None
    """URL of an OTLP/HTTP end point, to which `/v1/metrics` is appended; null: they are not sent."""
    interval: PositiveSeconds = 60.0
    """Seconds from one time to the next."""
    headers: dict[str, SecretStr] = Field(default={}, repr=False)
    """Headers of these requests."""

    @model_validator(mode="after")
    def _validate(self) -> TelemetryConfig:
        if self.endpoint is not None and not re.fullmatch(r"https?://[^\s@/?#]+(/[^\s@?#]*)?", self.endpoint):
            raise validation_error(
                "is written as http://collector:4318; passwords and keys go into headers", "endpoint"
            )
        return self


class GatewaySettings(BaseSettings):
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
    http_port: PortNumber = 4318
    """Port of OTLP/HTTP, the API, `/metrics`, `/healthz` and `/readyz`; 0: one that is free."""
    grpc_port: PortNumber = 4317
    """Port of OTLP/gRPC; 0: off."""
    data: Path = Path("goldspan-data")
    """Folder of the store and the journal. One gateway works on it at a time."""
    goldens: TextList = ()
    """Golden files. They are read again when they change."""
    forward: BackEndList = ()
    """OTLP back ends that everything is handed on to: URLs, or mappings with an endpoint, headers and more."""
    results: ResultOutputList = ()
    """What back ends are told of evaluations: events, metrics, spans, attributes of the spans that are handed on.
    Where there is a back end and nothing is said: events and metrics."""
    enrich: bool = False
    """Hold each trace until it is whole and write results into its spans: the same as `attributes` in `results`."""
    workers: Annotated[int, Field(ge=1, le=PARTITION_COUNT)] = 1
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
    allowed_hosts: TextList = ()
    """Further names by which the gateway may be called (the header Host), without ports."""
    allowed_origins: TextList = ()
    """Origins of browsers whose pages may use the gateway, such as https://grafana.example."""
    grace: NonNegativeSeconds = 5.0
    """Seconds that a trace whose root has come waits for more of its spans, after the last one."""
    idle: PositiveSeconds = 30.0
    """Seconds without a span after which a trace without a root is scored as it is."""
    late: NonNegativeSeconds = 60.0
    """Seconds for which late spans can change a run that was scored."""
    lifetime: PositiveSeconds = 3600.0
    """Seconds after which a trace is scored as it is, however busy."""
    units: UnitList = ("request", "component")
    """What is scored: request, component, conversation."""
    metrics: OptionalTextList = None
    """Names of metrics; null: all."""
    thresholds: ThresholdMap = {}
    """What a metric must reach, by its name, beside those of the goldens."""
    unknown: UnknownPolicy | None = None
    """What becomes of a run of which something that its golden states cannot be judged: not_evaluated, ignore (the rest
    decides) or fail; null: as the goldens say."""
    golden_id_attributes: OptionalTextList = None
    """Span attributes that name a golden, in the order tried; null: goldspan.golden.id, test.case.name."""
    near: SimilarityOrOff = DEFAULT_NEAR
    """From which similarity on, 0 to 100, a request's text is that of a golden; or off."""
    margin: NonNegativeSeconds = DEFAULT_MARGIN
    """How much nearer that golden must be than any other."""
    budget: PositiveSeconds | None = None
    """Seconds that the metrics of one run may take; null: no limit."""
    keep_arguments: bool = False
    """Store values too: arguments, results, texts of errors, outputs and metadata."""
    keep_days: PositiveSeconds | None = None
    """Days after which stored runs are deleted; null: they are kept."""
    max_store_bytes: Annotated[int, Field(ge=1)] | None = None
    """What the store's file may hold: the oldest runs go first; null: no limit."""
    limits: LimitsSection = ResourceLimits()
    """How much the gateway takes, keeps and waits for."""
    judge: JudgeConfig = JudgeConfig()
    """A model that is asked whether the tools were the best choice, and how much that may cost."""
    drain_seconds: NonNegativeSeconds = 10.0
    """Seconds that work in hand may take after the gateway was told to stop."""
    log_format: Literal["text", "json"] = "text"
    """How the log is written, which goes to standard error."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on the log is written."""
    telemetry: TelemetryConfig = TelemetryConfig()
    """Where the gateway sends its own figures, and how often."""

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
        """Read nothing but the arguments: `configuration.load` puts those together."""
        return (init_settings,)

    @model_validator(mode="after")
    def _validate_results(self) -> GatewaySettings:
        if self.results and not self.forward:
            raise validation_error(
                f"{join_words(self.results)} need a back end to go to: name one with forward", "results"
            )
        if self.enrich and not self.forward:
            raise validation_error("there are no spans to enrich without a back end: name one with forward", "enrich")
        results = self.results or (("events", "metrics") if self.forward else ())
        if "attributes" in results and "enrich" in self.model_fields_set and not self.enrich:
            raise validation_error("results has attributes, which is to enrich; leave one of them out", "enrich")
        if self.enrich:
            results = (*results, "attributes")
        chosen = tuple(outlet for outlet in RESULT_OUTPUTS if outlet in results)
        self.__dict__.update(results=chosen, enrich="attributes" in chosen)  # nobody has seen it yet
        return self

    @model_validator(mode="after")
    def _validate_access(self) -> GatewaySettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            given, other = ("tls_cert", "tls_key") if self.tls_key is None else ("tls_key", "tls_cert")
            raise validation_error(f"needs {other} beside it", given)
        if self.grpc_port and self.grpc_port == self.http_port:
            raise validation_error(f"HTTP and gRPC cannot share port {self.grpc_port}", "grpc_port")
        tokens = self.token_file or self.token or self.read_token_file or self.read_token
        if not (self.is_loopback or tokens or self.insecure):
            raise validation_error(
                f"{self.host} can be reached from elsewhere, and no token is asked: name a file of tokens with "
                "token_file (--token-file, or GOLDSPAN_TOKEN), or let everybody in with insecure (--insecure)",
                "host",
            )
        for origin in self.allowed_origins:
            if not re.fullmatch(r"https?://[^\s/*]+", origin):
                raise validation_error("an origin is written as https://grafana.example", "allowed_origins")
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
                    f"{host}:{port} is this gateway itself, so that everything would come again", "forward"
                )
        return self

    @property
    def _is_on_all_interfaces(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the gateway."""
        if self.host.lower() in LOOPBACK_HOSTS:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def host_names(self) -> frozenset[str] | None:
        """What may stand in the header Host; `None`: anything, where the names of this machine are not known."""
        if not (self.is_loopback or self.allowed_hosts):
            return None
        return LOOPBACK_HOSTS | {self.host, *self.allowed_hosts}

    @property
    def back_ends(self) -> tuple[Backend, ...]:
        """The back ends that everything is handed on to."""
        return parse_backends(self.forward)

    @property
    def ingest_tokens(self) -> tuple[str, ...]:
        """The tokens that may send telemetry. Raises `ConfigurationError` for a file that cannot be read."""
        return self._read_tokens("token_file", "token")

    @property
    def read_tokens(self) -> tuple[str, ...]:
        """The tokens that may read. Raises `ConfigurationError` for a file that cannot be read."""
        return self._read_tokens("read_token_file", "read_token")

    def origin_of(self, path: str) -> SettingOrigin:
        """Where the value of a field such as `limits.max_spans` was said."""
        return self._origins.get(path, DEFAULT_ORIGIN)

    def location_of(self, path: str) -> str:
        """How an error names that field."""
        return self.origin_of(path).describe_location(path)

    def _read_tokens(self, file_field: str, field: str) -> tuple[str, ...]:
        path: Path | None = getattr(self, file_field)
        said: SecretStr | None = getattr(self, field)
        found = read_token_file(path, self.location_of(file_field)) if path else []
        found += parse_tokens(said.get_secret_value(), self.location_of(field)) if said else []
        return tuple(dict.fromkeys(found))
