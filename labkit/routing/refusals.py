"""Refusals: how a model says no, in the words of both dialects.

What a caller may do about it depends on the kind, and each API tells the kinds apart in its own way: OpenAI by HTTP
status and ``error.code``, Bedrock by the exception's name. The table is the translation.

* Try again later: ``throttled``, ``quota``, ``concurrency`` (429), ``overloaded``, ``error``, ``timeout``,
  ``not_ready``. Only OpenAI says when (``Retry-After``); Bedrock's answers carry no such header.
* Never again as it is: ``context`` (shorten it, or use a larger model), ``invalid``, ``denied``, ``missing``.
* A slip of the lab's script: ``unscripted``.

Sources: statuses and names of Bedrock's exceptions from botocore's model of bedrock-runtime; its sentences, and that
no Retry-After comes with a 429, as quoted in public problem reports; OpenAI's types, codes and sentences from its error
guide and public reports. Marked below: what was not verified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from labkit.errors import LabError

__all__ = ["KINDS", "Refusal", "Said"]


@dataclass(frozen=True, slots=True)
class Said:
    """One kind in both dialects. The sentences may name ``{model}``, ``{tokens}`` and ``{limit}``; ``{says}`` is free.

    ``again`` is added to OpenAI's sentence where a time to wait is known.
    """

    status: int
    type: str
    code: str | None
    sentence: str
    aws: str
    aws_status: int
    aws_sentence: str
    param: str | None = None
    again: str = ""


_TOO_MANY = Said(
    429, "requests", "rate_limit_exceeded", "Rate limit reached for {model}.",
    "ThrottlingException", 429, "Too many requests, please wait before trying again.",
    again=" Please try again in {seconds:g}s.",
)  # fmt: skip

KINDS: dict[str, Said] = {
    "throttled": _TOO_MANY,
    "quota": _TOO_MANY,
    "concurrency": _TOO_MANY,
    "error": Said(
        500, "server_error", None,
        "The server had an error while processing your request. Sorry about that!",
        "InternalServerException", 500,
        "The system encountered an unexpected error during processing. Try your request again.",
    ),
    "overloaded": Said(
        503, "server_error", None, "The engine is currently overloaded, please try again later",
        "ServiceUnavailableException", 503, "Bedrock is unable to process your request.",
    ),
    "not_ready": Said(  # OpenAI has no such thing; AWS's sentence: not verified
        503, "server_error", "model_not_ready", "The model {model} is not ready yet, please try again later",
        "ModelNotReadyException", 429, "The model is not ready for inference. Try your request again later.",
    ),
    "timeout": Said(  # both sentences: not verified
        504, "server_error", None, "The request timed out.",
        "ModelTimeoutException", 408, "Model has timed out in processing the request. Try your request again.",
    ),
    "model_error": Said(  # OpenAI has no such thing; AWS's sentence: not verified
        500, "server_error", None, "The model {model} failed while processing your request.",
        "ModelErrorException", 424, "The model returned an error while processing the request.",
    ),
    "context": Said(
        400, "invalid_request_error", "context_length_exceeded",
        "This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages.",
        "ValidationException", 400,
        "The model returned the following errors: prompt is too long: {tokens} tokens > {limit} maximum",
        param="messages",
    ),
    "unknown_model": Said(
        404, "invalid_request_error", "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
        "ValidationException", 400, "The provided model identifier is invalid.",
        param="model",
    ),
    "missing": Said(  # an ARN that leads nowhere, or a model at the end of its life
        404, "invalid_request_error", "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
        "ResourceNotFoundException", 404,
        "Could not resolve the foundation model from the provided model identifier.",
        param="model",
    ),
    "denied": Said(
        401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided.",
        "AccessDeniedException", 403, "You don't have access to the model with the specified model ID.",
    ),
    "invalid": Said(400, "invalid_request_error", None, "{says}", "ValidationException", 400, "{says}"),
    "unscripted": Said(400, "invalid_request_error", "unscripted", "{says}", "ValidationException", 400, "{says}"),
}  # fmt: skip


class Refusal(LabError):
    """The model does not answer this call: ``kind`` is a key of :data:`KINDS`, ``retry_after`` is in seconds."""

    def __init__(self, kind: str, *, retry_after: float | None = None, param: str | None = None, **named: Any) -> None:
        self.kind, self.retry_after, self.param = kind, retry_after, param
        self.said = KINDS[kind]
        self._named = named
        super().__init__(f"{kind}: {self.openai_sentence('the model')}")

    def openai_sentence(self, model: str) -> str:
        again = self.said.again if self.retry_after is not None else ""
        return (self.said.sentence + again).format_map(self._all(model))

    def aws_sentence(self, model: str) -> str:
        return self.said.aws_sentence.format_map(self._all(model))

    @property
    def waits(self) -> dict[str, str]:
        """OpenAI's headers that say when to come back: in whole seconds as HTTP wants it, and in milliseconds."""
        if self.retry_after is None:
            return {}
        return {
            "Retry-After": str(math.ceil(self.retry_after)),
            "retry-after-ms": str(math.ceil(self.retry_after * 1000)),
        }

    def _all(self, model: str) -> dict[str, Any]:
        seconds = math.ceil((self.retry_after or 0.0) * 1000) / 1000
        return {"model": model, "seconds": seconds, **self._named}
