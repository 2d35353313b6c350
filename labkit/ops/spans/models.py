"""Model calls: a span for the call, and one for each attempt that it took.

Names and attributes follow OpenTelemetry's conventions for generative AI (status: Development): ``chat <model>``,
``gen_ai.operation.name``, ``gen_ai.provider.name``, ``gen_ai.request.model``, ``gen_ai.usage.*``. A routed call is::

    chat agent-primary              internal   the group that was asked for, and what came of it
        chat us.anthropic.…         client     throttled, 429
        chat gpt-4o-mini            client     answered, with tokens

so that "which model call was it" has an answer: the attempt that took the time, or that failed first. A call that
nobody received (its group is benched, or no permit came) is no attempt at a model: it is an event of the call's span.
Prompts and answers are not recorded; the conventions leave them out by default, too.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from labkit.routing.router_outcome import NoAnswer, Routed

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from labkit.ops.tracing import Tracing
    from labkit.routing.router import Router

__all__ = ["ModelCall", "route"]

_PROVIDERS = {
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "vertex_ai": "gcp.vertex_ai",
    "mistral": "mistral_ai",
}
_NOBODY_CALLED = ("cooldown", "full")

logger = logging.getLogger(__name__)


class ModelCall:
    """The span of one call to one model; what the block raises is its error. ``span`` is OpenTelemetry's."""

    def __init__(self, tracing: Tracing, model: str, provider: str) -> None:
        from opentelemetry import context, trace

        self._tracing, self._context = tracing, context
        self.span: Span = tracing.begin(f"chat {model}", "client", _chat(model, provider))
        self._token = context.attach(trace.set_span_in_context(self.span))

    def answered(self, response: Any) -> Any:
        """Note the usage of a Converse answer, or of one in OpenAI's form; returns it."""
        try:
            self.span.set_attributes(_usage(response))
        except Exception:  # an answer in another form is an answer all the same
            logger.info("the usage of a model call was not noted", exc_info=True)
        return response

    def __enter__(self) -> ModelCall:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if error is not None:
            self._tracing.fails(self.span, error)
        self._context.detach(self._token)
        self.span.end()


def route(tracing: Tracing, router: Router) -> Router:
    """Trace ``router``: its ``complete`` and its attempts. Tracing it twice is harmless."""
    from opentelemetry import trace

    complete: Callable[..., Routed] = router.complete
    if hasattr(complete, "__wrapped__"):
        return router
    known = {each.id: _named(each.params) for each in router.config.deployments}

    def attempt(group: str) -> Callable[[Any, str, Exception | None], object]:
        members = router.config.members(group)
        # Which deployment it will be, LiteLLM decides; who shares a group is the same model in two places.
        model, provider = known[members[0].id]
        span = tracing.begin(f"chat {model}", "client", {**_chat(model, provider), "labkit.group": group})

        def told(response: Any, kind: str, error: Exception | None) -> None:
            try:
                _told(tracing, span, known, response, kind, error)
            except Exception:
                logger.warning("an attempt at a model was not noted", exc_info=True)
            finally:
                span.end()

        return told

    @functools.wraps(complete)
    def traced(group: str, messages: Any, **options: Any) -> Routed:
        span = tracing.begin(f"chat {group}", "internal", _chat(group, "labkit.router"))
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                routed = complete(group, messages, **options)
            _nobody(span, routed.attempts)
            span.set_attributes(
                {
                    "labkit.group": routed.group,
                    "labkit.deployment": routed.deployment,
                    "labkit.attempts": len(routed.attempts) + 1,
                    "labkit.fell_back": routed.fell_back,
                    "gen_ai.usage.input_tokens": routed.input_tokens,
                    "gen_ai.usage.output_tokens": routed.output_tokens,
                }
            )
            return routed
        except BaseException as error:
            if isinstance(error, NoAnswer):
                _nobody(span, error.attempts)
            tracing.fails(span, error)
            raise
        finally:
            span.end()

    router.watch = attempt
    router.complete = traced  # type: ignore[method-assign]
    return router


def _told(
    tracing: Tracing,
    span: Span,
    known: Mapping[str, tuple[str, str]],
    response: Any,
    kind: str,
    error: Exception | None,
) -> None:
    if error is None:
        at = str(response._hidden_params.get("model_id") or "")
        span.set_attributes({"labkit.outcome": "answered", **_usage(response)})
    else:
        at = str(getattr(error, "failed_deployment_id", None) or "")
        span.set_attribute("labkit.outcome", kind or "raised")
        if status := getattr(error, "status_code", None):
            span.set_attribute("http.response.status_code", int(status))
        tracing.fails(span, error)
    if at in known:
        model, provider = known[at]
        span.update_name(f"chat {model}")
        span.set_attributes({**_chat(model, provider), "labkit.deployment": at})
    elif kind in _NOBODY_CALLED:
        span.update_name(f"permit {kind}")


def _nobody(span: Span, attempts: Any) -> None:
    for each in attempts:
        if each.kind == "cooldown":
            span.add_event("not called", {"labkit.group": each.group, "labkit.outcome": each.kind})


def _chat(model: str, provider: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}


def _named(params: Mapping[str, Any]) -> tuple[str, str]:
    """The model's name and provider out of LiteLLM's ``provider/route/model``."""
    parts = str(params["model"]).split("/")
    return parts[-1], _PROVIDERS.get(parts[0], parts[0] if len(parts) > 1 else "openai")


def _usage(response: Any) -> dict[str, Any]:
    if isinstance(response, Mapping):  # Converse
        used = response["usage"]
        return {
            "gen_ai.usage.input_tokens": int(used["inputTokens"]),
            "gen_ai.usage.output_tokens": int(used["outputTokens"]),
            "gen_ai.response.finish_reasons": [str(response["stopReason"])],
        }
    return {
        "gen_ai.usage.input_tokens": int(response.usage.prompt_tokens),
        "gen_ai.usage.output_tokens": int(response.usage.completion_tokens),
        "gen_ai.response.model": str(response.model),
        "gen_ai.response.finish_reasons": [str(choice.finish_reason) for choice in response.choices],
    }
