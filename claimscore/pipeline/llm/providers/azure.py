"""Chat completions of Azure OpenAI: a deployment of a resource, at its own path.

The resource's other address, `https://RESOURCE.openai.azure.com/openai/v1`, speaks OpenAI's
protocol as it is, and is asked as `openai:DEPLOYMENT`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from claimscore.config import LLMConfig, environment
from claimscore.errors import AuthenticationError, ClaimscoreError, ConfigError, UnknownModelError
from claimscore.pipeline.llm.providers.errors import Refusal
from claimscore.pipeline.llm.providers.openai import OpenAIProvider

if TYPE_CHECKING:
    import openai

ADDRESS_VARIABLE = "AZURE_OPENAI_ENDPOINT"
TOKEN_VARIABLE = "AZURE_OPENAI_AD_TOKEN"
VERSION_VARIABLE = "OPENAI_API_VERSION"

#: The version of the API where none is named: the last that is no preview.
API_VERSION = "2024-10-21"


class AzureProvider(OpenAIProvider):
    """`azure:DEPLOYMENT` of a resource; the variables are those of Azure's SDK.

    The address may be written with or without `/openai`. The key may also be a token of Entra ID,
    which ends after an hour or so.
    """

    family = "azure"
    usage = "azure:DEPLOYMENT", f"Azure OpenAI ({ADDRESS_VARIABLE}, AZURE_OPENAI_API_KEY)"
    key_variable = "AZURE_OPENAI_API_KEY"
    address_variable = ADDRESS_VARIABLE
    default_base_url = ""
    batches = None
    has_embeddings = False

    def __init__(
        self, model: str, *, base_url: str, api_version: str = API_VERSION, **options: Any
    ) -> None:
        address = base_url.rstrip("/").removesuffix("/openai")
        super().__init__(model, base_url=address, **options)
        self._api_version = api_version
        if self.base_url.endswith("/openai/v1"):
            raise ConfigError(
                f"{self.base_url} speaks OpenAI's own protocol: ask it with --llm "
                "openai:DEPLOYMENT and its key in OPENAI_API_KEY"
            )

    def _vendor_headers(self) -> dict[str, str]:
        if self.key is None or self._has_token:
            return super()._vendor_headers()
        return {"api-key": self.key}

    @property
    def _has_token(self) -> bool:
        """Whether the key is a token: those are JSON web tokens, and no key holds a full stop."""
        return self.key is not None and self.key.count(".") == 2

    @functools.cached_property
    def sdk(self) -> openai.AsyncAzureOpenAI:
        import openai

        return openai.AsyncAzureOpenAI(
            azure_endpoint=self.base_url,
            api_version=self._api_version,
            **self.sdk_options,
        )

    def path_to(self, model: str) -> str:
        """The SDK would make it of the body, which it is given as bytes."""
        return f"/deployments/{quote(model, safe='')}{self.path}"

    def error(self, refusal: Refusal, model: str) -> ClaimscoreError:
        status, error = refusal.status, super().error(refusal, model)
        if status == 401 and self._has_token:
            return AuthenticationError(
                f"{self.base_url} refused the token (HTTP 401), which may have ended; fetch "
                f"another into {TOKEN_VARIABLE}"
            )
        about_version = "api version" in refusal.words or "api-version" in refusal.words
        is_elsewhere = status == 404 and not isinstance(error, UnknownModelError)
        if is_elsewhere or (status == 400 and about_version):
            return ConfigError(
                f"{self.base_url}: HTTP {status}: {refusal.message}; check --base-url (or "
                f"{ADDRESS_VARIABLE}) and {VERSION_VARIABLE}, now {self._api_version}"
            )
        return error

    @classmethod
    def _vendor_options(cls, config: LLMConfig) -> dict[str, Any]:
        """A token before a key, as Azure's own SDK takes them, and the version of the API."""
        if not config.base_urls and environment(ADDRESS_VARIABLE) is None:
            raise ConfigError(
                f"--llm {config.model}: set {ADDRESS_VARIABLE}, or --base-url, to the resource's "
                "address, such as https://RESOURCE.openai.azure.com"
            )
        options = {"api_version": environment(VERSION_VARIABLE) or API_VERSION}
        token = environment(TOKEN_VARIABLE) if config.key_variable is None else None
        return options | ({"key": token, "key_variable": TOKEN_VARIABLE} if token else {})

    def _is_vendors(self) -> bool:
        return (urlsplit(self.base_url).hostname or "").endswith(".azure.com")
