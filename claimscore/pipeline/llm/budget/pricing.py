"""Prices of tokens. The only home of genai-prices.

The table comes with that package and is read from there: nothing is fetched. A price is given
only to a model at the address of the company that the table names; the same name at another
address, or at a server of one's own, has no price, which is not the same as costing nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from claimscore.config import LLMConfig, api_base_url
from claimscore.errors import ConfigError
from claimscore.pipeline.llm.providers.base import is_local
from claimscore.types import Request

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as PricedProvider

    from claimscore.pipeline.llm.providers.base import Provider

#: Costs are whole picodollars, so that sums are exact: a millionth of a dollar a million tokens.
PICO = 10**12

#: Where `openai:MODEL` goes when nothing else is named.
_OPENAI_URL = "https://api.openai.com/v1"

#: OpenAI caches prompts from this length on, some models at a price and without being asked.
_CACHED_FROM_TOKENS = 1024

#: The source of prices that the user names.
GIVEN = "--input-price and --output-price"

_BATCH = {"processing": "batch"}
_PRICED = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """Dollars a million tokens, for prompts of more than so many tokens.

    All tokens of such a request cost this, not only those above the mark.
    """

    input_per_mtok: float
    output_per_mtok: float
    cached_input_per_mtok: float
    above_prompt_tokens: int = -1


@dataclasses.dataclass(frozen=True)
class Price:
    """The price of a model in dollars a million tokens, and its source.

    `tiers` are other prices for longer prompts, shortest first; `per_request_usd` comes on
    top of the tokens of each answer.
    """

    input_per_mtok: float
    output_per_mtok: float
    cached_input_per_mtok: float
    source: str
    per_request_usd: float = 0.0
    tiers: tuple[Rates, ...] = ()

    @functools.cached_property
    def _per_token(self) -> list[tuple[int, int, int, int]]:
        """Picodollars a prompt token, completion token and cached prompt token, after the length
        above which they hold; the longest prompts first."""
        first = Rates(self.input_per_mtok, self.output_per_mtok, self.cached_input_per_mtok)
        return [
            (
                rates.above_prompt_tokens,
                _pico(rates.input_per_mtok / 10**6),
                _pico(rates.output_per_mtok / 10**6),
                _pico(rates.cached_input_per_mtok / 10**6),
            )
            for rates in (*reversed(self.tiers), first)
        ]

    @functools.cached_property
    def _per_request(self) -> int:
        return _pico(self.per_request_usd)

    def cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> int:
        """Picodollars of one answer; `cached_tokens` are those of the prompt's."""
        _, prompt, completion, cached = next(r for r in self._per_token if prompt_tokens > r[0])
        hits = min(cached_tokens, prompt_tokens)
        tokens = prompt * (prompt_tokens - hits) + cached * hits + completion * completion_tokens
        return self._per_request + tokens

    def of_many(self, requests: float, prompt_tokens: float, completion_tokens: float) -> float:
        """Dollars of so many answers that are all of one size, from their tokens in all."""
        if not requests:
            return 0.0
        length = prompt_tokens / requests
        _, prompt, completion, _ = next(r for r in self._per_token if length > r[0])
        tokens = prompt * prompt_tokens + completion * completion_tokens
        return (self._per_request * requests + tokens) / PICO

    def most(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Picodollars that an answer costs at most, with up to so many tokens."""
        return self._per_request + max(
            max(prompt, cached) * prompt_tokens + completion * completion_tokens
            for above, prompt, completion, cached in self._per_token
            if prompt_tokens > above
        )


def _pico(usd: float) -> int:
    """A price in picodollars, rounded up; what floating point adds to it is no reason to."""
    return math.ceil(round(usd * PICO, 3))


# -- finding one


class Prices:
    """The prices of the models that an engine asks; each is looked up when it is first needed.

    `asked` are the providers, the run's own first, each with the settings that it was made by.
    """

    def __init__(self, *asked: tuple[LLMConfig, Provider]) -> None:
        self._asked = asked
        self._known: dict[tuple[str, str, str], Price | None] = {}

    def __call__(self, request: Request) -> Price | None:
        """The price of the request's model at its server; None where it is not known."""
        return self._of(request.provider, request.namespace, request.model)

    def of(self, provider: Provider, model: str = "") -> Price | None:
        """The price of a provider's own model, or of another that it is asked for."""
        return self._of(provider.family, provider.namespace, model or provider.model)

    def require(self, models: Iterable[str]) -> None:
        """`ConfigError` where a model has no known price, one of `models` that prompts name too."""
        first = self._asked[0][1]
        asked = [(provider, provider.model) for _, provider in self._asked]
        for provider, model in (*asked, *((first, model) for model in models)):
            if self.of(provider, model) is None:
                raise unknown_price(model)

    def _of(self, family: str, namespace: str, model: str) -> Price | None:
        place = family, namespace, model
        if place not in self._known:
            at_server = (
                (config, provider)
                for config, provider in self._asked
                if (provider.family, provider.namespace) == (family, namespace)
            )
            config, provider = next(at_server, self._asked[0])
            named = config.model.partition(":")[0]
            config = dataclasses.replace(config, model=f"{named}:{model}")
            self._known[place] = find_price(config, getattr(provider, "base_url", None))
        return self._known[place]


def unknown_price(model: str) -> ConfigError:
    """Why a cap in dollars cannot be kept."""
    return ConfigError(
        f"--max-cost: what {model} costs at this server is not known; name --input-price and "
        "--output-price (dollars a million tokens), or bound the run by --max-requests"
    )


def find_price(config: LLMConfig, base_url: str | None = None) -> Price | None:
    """The price of the configured model at `base_url`; None where it is not known.

    The user's own prices hold as given, for batches too. `builtin` costs nothing. Otherwise
    the table decides, by the model's name and the server's address; where several servers have
    several prices, the cost of one answer cannot be told. Where its price changes with
    the hour or by tomorrow, the highest of them is taken. A batch costs what the table says, and
    half where it says nothing of batches.
    """
    if config.input_price is not None and config.output_price is not None:
        return Price(config.input_price, config.output_price, config.input_price, GIVEN)
    family, model = config.family, config.model_name
    if is_local(family):
        return Price(0.0, 0.0, 0.0, f"{family}: no model is asked")
    urls = (base_url,) if base_url else config.base_urls or (api_base_url() or _OPENAI_URL,)
    prices = {_from_table(model, url, batch=config.is_batch) for url in urls}
    return prices.pop() if len(prices) == 1 else None


def _from_table(name: str, url: str, *, batch: bool) -> Price | None:
    from genai_prices import __version__
    from genai_prices.data_snapshot import get_snapshot  # 0.2 s: only where it is needed

    providers = get_snapshot().providers
    for provider in providers:
        if not _is_at(url, provider):
            continue
        model = provider.find_model(name, all_providers=providers)
        if model is None:
            continue
        tiers = _tiers(model, batch=batch)
        if not tiers:
            return None
        return Price(
            tiers[0].input_per_mtok,
            tiers[0].output_per_mtok,
            tiers[0].cached_input_per_mtok,
            source=f"genai-prices {__version__}: {provider.id}/{model.id}{', batch' * batch}",
            per_request_usd=_request_fee(model),
            tiers=tuple(tiers[1:]),
        )
    return None


def _is_at(url: str, provider: PricedProvider) -> bool:
    """Whether the address is the provider's own, not one that begins or ends alike.

    The table's patterns are open at the end and some at the front; so nothing but the host may
    be dotted, and the match must end where a name ends.
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port not in (None, 443) else ""
    except ValueError:
        return False
    host = f"{parts.scheme}://{parts.hostname or ''}{port}"
    address = host + parts.path.replace(".", "-")
    match = re.match(provider.api_pattern, address)
    if match is None:
        return False
    rest = address[match.end() :]
    in_host = match.end() < len(host)
    if address[match.end() - 1] == "." and in_host:  # such as `https://api\.moonshot\.`
        return re.match(r"[a-z]{2,4}(/|$)", rest) is not None
    return not rest or rest[0] == "/" or address[match.end() - 1] == "/"


def _tiers(model: ModelInfo, *, batch: bool) -> list[Rates]:
    """The model's rates by length of the prompt, the highest of the next day; empty where the
    table does not price both kinds of tokens."""
    moments = _moments(model)
    prices = [model.get_prices(moment, _BATCH if batch else None) for moment in moments]
    values = [getattr(found, name) for found in prices for name in _PRICED]
    marks = {tier.start for value in values for tier in getattr(value, "tiers", ())}
    tiers: list[Rates] = []
    for mark in sorted({-1, _CACHED_FROM_TOKENS - 1, *marks}):
        choices = [_rates(model, moment, mark, batch=batch) for moment in moments]
        known = [rates for rates in choices if rates is not None]
        if len(known) < len(choices):
            return []
        highest = Rates(*map(max, zip(*known, strict=True)))
        if not tiers or highest != dataclasses.replace(tiers[-1], above_prompt_tokens=-1):
            tiers.append(dataclasses.replace(highest, above_prompt_tokens=mark))
    return tiers


def _moments(model: ModelInfo) -> list[datetime.datetime]:
    """Now, the same time tomorrow, and the hours between at which a price begins or ends."""
    now = datetime.datetime.now(datetime.UTC)
    moments = [now, now + datetime.timedelta(days=1)]
    if isinstance(model.prices, list):
        for part in model.prices:
            for name in ("start_time", "end_time"):
                hour = getattr(part.constraint, name, None)
                if hour is not None:
                    moments.append(datetime.datetime.combine(now.date(), hour, datetime.UTC))
    return moments


def _rates(
    model: ModelInfo, moment: datetime.datetime, mark: int, *, batch: bool
) -> tuple[float, float, float] | None:
    """Input, output and cached input for a prompt just above `mark` tokens at this time.

    OpenAI's newer models write prompts into their cache unasked and charge for it. How many
    tokens were written is not among our figures, so all that were not read count as written.
    """
    standard = model.get_prices(moment)
    prices = model.get_prices(moment, _BATCH) if batch else standard
    plain, output = _value_at(prices.input_mtok, mark), _value_at(prices.output_mtok, mark)
    if plain is None or output is None:
        return None
    read = _value_at(prices.cache_read_mtok, mark)
    cached = plain if read is None else read
    if mark >= _CACHED_FROM_TOKENS - 1 and model.id.rpartition("/")[2].startswith("gpt-"):
        plain = max(plain, _value_at(prices.cache_write_mtok, mark) or 0.0)
    if batch and prices == standard:  # the table does not say what a batch costs
        return plain / 2, output / 2, min(plain / 2, cached)
    return plain, output, cached


def _value_at(value: Any, mark: int) -> float | None:
    """A price, tiered or not, for prompts just above the mark."""
    if value is None:
        return None
    reached = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= mark]
    return float(reached[-1] if reached else getattr(value, "base", value))


def _request_fee(model: ModelInfo) -> float:
    """Dollars that each request costs whatever its length."""
    fees = [model.get_prices(moment).requests_kcount for moment in _moments(model)]
    return max(_value_at(fee, -1) or 0.0 for fee in fees) / 1000
