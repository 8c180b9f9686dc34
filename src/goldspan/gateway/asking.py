"""The judge of a worker, as the settings have it."""

from __future__ import annotations

from opentelemetry.metrics import MeterProvider

from goldspan.errors import ConfigurationError
from goldspan.gateway.settings.fields import Settings
from goldspan.judge.judges import Judge
from goldspan.online.sampling import Sampling


def judge_of(settings: Settings, meter_provider: MeterProvider) -> Judge | None:
    """The judge that the settings ask for; `None`: they ask for none.

    Raises `ConfigurationError` where its file is of no use.
    """
    told = settings.judge.told(settings.data)
    if told is None:
        return None
    try:
        return told.judge(samples=Sampling(told.sample).keeps, meter_provider=meter_provider)
    except ConfigurationError as error:  # the model can be asked, so it is the file
        raise ConfigurationError(f"{settings.place('judge.cache')}: {error}") from None
