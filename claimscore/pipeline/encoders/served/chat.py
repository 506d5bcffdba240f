"""Verifiers behind a server of OpenAI's chat protocol, which answer Yes or No.

``Bespoke-MiniCheck`` (Tang et al. 2024, MiniCheck, EMNLP) is asked whether a claim is consistent
with a document. ``Granite Guardian`` (Padhi et al. 2024) is asked whether an answer is *not*
grounded in it, so there No is support. The probability is that of the word among the likeliest
tokens at its place; both prompts are those of the authors.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimscore.errors import ConfigError, RejectedError
from claimscore.pipeline.encoders.distinct import Pair, distinct
from claimscore.pipeline.encoders.protocols import CHAT_LIMIT, NLI_LABELS, ModelInfo, OnBatch
from claimscore.pipeline.encoders.served.client import BatchesInFlight, ServerClient

#: Documents that are asked about at the same time; the claims of each follow one another, so that
#: the server's prefix cache has the document from the second on.
IN_FLIGHT = 32

#: Tokens of the prompts beside document and claim, at most.
PROMPT_TOKENS = 400

#: The likeliest tokens that are asked for; some servers give no more.
TOP_LOGPROBS = 5

PROBE = ("The hotel was clean and quiet.", "The hotel was quiet.")

_CONSISTENT = (
    "Determine whether the provided claim is consistent with the corresponding document. "
    "Consistency in this context implies that all information presented in the claim is "
    "substantiated by the document. If not, it should be considered inconsistent. Please assess "
    'the claim\'s consistency with the document by responding with either "Yes" or "No".'
)


class Prompt(NamedTuple):
    """How a model is asked: the rest of the request, the word that means support, and how many
    tokens the answer may have."""

    name: str
    body: Callable[[str, str], dict[str, Any]]
    support: str
    max_tokens: int


def _minicheck(document: str, claim: str) -> dict[str, Any]:
    user = f"Document: {document}\nClaim: {claim}"
    return {"messages": [_message("system", _CONSISTENT), _message("user", user)]}


def _guardian(document: str, claim: str) -> dict[str, Any]:
    """From version 3.3 on: the context is a document."""
    return {
        "messages": [_message("assistant", claim)],
        "documents": [{"doc_id": "0", "text": document}],
        "chat_template_kwargs": {"guardian_config": {"criteria_id": "groundedness"}},
    }


def _early_guardian(document: str, claim: str) -> dict[str, Any]:
    """Up to version 3.2: the context is a message."""
    return {
        "messages": [_message("context", document), _message("assistant", claim)],
        "chat_template_kwargs": {"guardian_config": {"risk_name": "groundedness"}},
    }


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


MINICHECK = Prompt("minicheck", _minicheck, "yes", 1)
GUARDIAN = Prompt("granite-guardian", _guardian, "no", 12)
EARLY_GUARDIAN = Prompt("granite-guardian-3.0", _early_guardian, "no", 12)


def prompt_of(model: str) -> Prompt:
    """The prompt of a model, by its name: that of MiniCheck unless it is a Granite Guardian."""
    name = model.lower().replace("_", "-").replace(":", "-")
    if "guardian" not in name:
        return MINICHECK
    is_early = any(f"-3.{minor}" in name for minor in range(3))
    return EARLY_GUARDIAN if is_early else GUARDIAN


class ChatVerifier:
    """Probability that a document supports a claim, by one question a pair; see `Verifier`.

    ``usage`` counts requests and their tokens. Each distinct pair is asked once; what the model
    cannot read the server refuses, so nothing is cut.
    """

    kind = "binary"
    threshold = None
    #: Answers are stored after so many, so a kill loses no more.
    pairs_at_once = 1024

    def __init__(self, client: ServerClient, model: str) -> None:
        self.client = client
        self.prompt = prompt_of(model)
        self.info = ModelInfo(f"openai:{model}", "unknown", "unknown")
        self.usage: Counter[str] = Counter()
        self._model = model
        self._counting = threading.Lock()
        told = client.ask("/models", threading.Event(), lambda answer: _limit(answer, model))
        self.limit = told - PROMPT_TOKENS if told else CHAT_LIMIT
        self.facts = {
            "asked": model,
            "server": client.address,
            "prompt": self.prompt.name,
            "limit": str(self.limit),
        }
        try:
            self.probe = self._support(*PROBE, threading.Event())
        except RejectedError as exc:
            raise ConfigError(f"{model} at {client.address} cannot verify: {exc}") from None

    def classify(
        self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None
    ) -> NDArray[np.float32]:
        """Return ``[n, 3]``; `RejectedItemsError` for the pairs of documents that are refused."""
        claims: dict[str, dict[str, int]] = {}
        for document, claim in pairs:
            claims.setdefault(document, {}).setdefault(claim, len(claims.get(document, ())))

        def ask(documents: list[str], stop: threading.Event) -> NDArray[np.float32]:
            (document,) = documents
            found = [self._support(document, claim, stop) for claim in claims[document]]
            return np.array([found], dtype=np.float32)

        self.client.doubt()
        documents = distinct([document for document, _ in pairs])
        batches = BatchesInFlight(ask, size=1, in_flight=IN_FLIGHT)
        rows = batches.rows(documents, [len(text) for text in documents.items], on_batch)
        support = np.array(
            [
                rows[place][claims[document][claim]]
                for place, (document, claim) in zip(documents.inverse, pairs, strict=True)
            ],
            dtype=np.float32,
        )
        found = np.full((len(pairs), len(NLI_LABELS)), np.nan, dtype=np.float32)
        found[:, 0], found[:, 1] = support, 1 - support
        return found

    def truncates(self, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
        """Return ``[n]``, all false."""
        return np.zeros(len(pairs), dtype=bool)

    def _support(self, document: str, claim: str, stop: threading.Event) -> float:
        return self.client.ask("/chat/completions", stop, self._read, self._body(document, claim))

    def _body(self, document: str, claim: str) -> dict[str, Any]:
        return {
            "model": self._model,
            **self.prompt.body(document, claim),
            "temperature": 0,
            "max_tokens": self.prompt.max_tokens,
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
        }

    def _read(self, answer: Any) -> float:
        """The probability of support; `ValueError` where the answer has none."""
        try:
            (choice,) = answer["choices"]
            tokens = (choice.get("logprobs") or {}).get("content")
            used = answer.get("usage") or {}
            details = used.get("prompt_tokens_details") or {}
            with self._counting:
                self.usage["requests"] += 1
                for name in ("prompt_tokens", "completion_tokens"):
                    self.usage[name] += int(used.get(name) or 0)
                self.usage["cached_prompt_tokens"] += int(details.get("cached_tokens") or 0)
            if not tokens:
                raise ValueError("it gives no log-probabilities; --verifier llm needs none")
            found = yes_or_no(tokens)
        except (KeyError, TypeError, AttributeError):
            raise ValueError("this is no answer of OpenAI's chat protocol") from None
        if found is None:
            said = str(choice["message"]["content"]).strip()
            raise ValueError(f"it answers neither Yes nor No: {said[:80]!r}")
        return found[self.prompt.support]


def yes_or_no(tokens: Iterable[Mapping[str, Any]]) -> dict[str, float] | None:
    """The probabilities of "yes" and "no" at the first token that is one of them; None where none
    is. Each is the sum over its spellings among the likeliest tokens."""
    for place in tokens:
        if _word(place["token"]) in ("yes", "no"):
            own = {place["token"]: place["logprob"]}
            top = {one["token"]: one["logprob"] for one in place.get("top_logprobs") or ()}
            found = {"yes": 0.0, "no": 0.0}
            for token, logprob in (own | top).items():
                if _word(token) in found:
                    found[_word(token)] += math.exp(min(float(logprob), 0.0))
            return {word: min(p, 1.0) for word, p in found.items()}
    return None


def _word(token: str) -> str:
    return token.strip(" \n\t\"'.,<>▁Ġ").lower()


def _limit(answer: Any, model: str) -> int | None:
    """How many tokens the model reads, where the list of models says so, as vLLM's does."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    for one in listed or ():
        if isinstance(one, dict) and one.get("id") == model:
            told = one.get("max_model_len")
            return told if isinstance(told, int) and told > PROMPT_TOKENS else None
    return None


def load_chat(client: ServerClient, model: str) -> ChatVerifier:
    """Return a verifier of the server; `ConfigError` where it does not answer as one."""
    from claimscore.pipeline.encoders.served.servers import impatient

    with impatient(client):
        return ChatVerifier(client, model)
