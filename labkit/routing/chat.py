"""OpenAI's dialect: chat completions, as ``POST /v1/chat/completions`` takes and gives them.

A tool call has its input as JSON *text*; each result is a message of its own with the role ``tool``, and every call
must have one before the conversation goes on. A stream is server-sent events: ``data: {…}`` and a blank line, ended by
``data: [DONE]``; its usage comes only if ``stream_options.include_usage`` asks for it, in a last chunk without choices.

Read here: messages with text, tool calls and results; tools, tool_choice, max_tokens and max_completion_tokens, stream.
Parts that are no text count as a word such as ``[image_url]``. Everything else (temperature, response_format …) is
accepted and changes nothing. The sentences of refusals are OpenAI's own where it is known to have one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from labkit.routing.conversation import Conversation, Tool, ToolCall, ToolResult, Turn, as_json
from labkit.routing.dialects import CONTENT, END, FRAME, Event, Milliseconds, Reply, invalid, pieces
from labkit.routing.refusals import Refusal

__all__ = ["ChatCompletions"]

_FINISH = {"stop": "stop", "tools": "tool_calls", "length": "length"}
_CHOICES: dict[str, Literal["auto", "none", "any"]] = {"auto": "auto", "none": "none", "required": "any"}


class ChatCompletions:
    """:class:`~labkit.routing.dialects.Dialect` of OpenAI."""

    name = "openai"
    stream_type = "text/event-stream; charset=utf-8"

    def read(self, body: Mapping[str, Any], model: str, stream: bool) -> Conversation:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise invalid("Missing required parameter: 'messages'.", "messages")
        if body.get("n") not in (None, 1):
            raise invalid("Only one answer a call is scripted: 'n' must be 1.", "n")
        system, turns = _turns(messages)
        choice, forced = _choice(body.get("tool_choice"))
        tools = _tools(body.get("tools"))
        if forced and forced not in {tool.name for tool in tools}:
            raise invalid(f"Tool choice '{forced}' is not in 'tools'.", "tool_choice")
        options = body.get("stream_options") or {}
        return Conversation(
            model,
            turns,
            system,
            tools,
            "tool" if forced else choice,
            forced,
            _most(body),
            stream,
            bool(isinstance(options, Mapping) and options.get("include_usage")),
        )

    def whole(self, reply: Reply, milliseconds: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.answer.text or None, "refusal": None}
        if reply.answer.calls:
            message["tool_calls"] = [
                _call(reply, number, as_json(call.input)) for number, call in enumerate(reply.answer.calls)
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply.finish]}
        return {**_frame(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def events(self, reply: Reply, started: Milliseconds) -> Iterator[Event]:
        words, inputs = pieces(reply.answer)
        yield FRAME, _chunk(reply, {"role": "assistant", "content": "" if words or not inputs else None})
        for word in words:
            yield CONTENT, _chunk(reply, {"content": word})
        for number, parts in enumerate(inputs):
            yield CONTENT, _chunk(reply, {"tool_calls": [{"index": number, **_call(reply, number, "")}]})
            for part in parts:
                yield CONTENT, _chunk(reply, {"tool_calls": [{"index": number, "function": {"arguments": part}}]})
        yield END, _chunk(reply, {}, _FINISH[reply.finish])
        if reply.asked.include_usage:
            yield END, _data({**_frame(reply, "chat.completion.chunk"), "choices": [], "usage": _usage(reply)})
        yield END, b"data: [DONE]\n\n"

    def refused(self, refusal: Refusal, model: str) -> tuple[int, dict[str, str], dict[str, Any]]:
        return refusal.said.status, refusal.waits, _error(refusal, model)

    def broken(self, refusal: Refusal, model: str) -> bytes:
        return _data(_error(refusal, model))

    def headers(self, key: str) -> dict[str, str]:
        return {"x-request-id": f"req_{key}"}


# -- what comes in -----------------------------------------------------------------------------------------------------


def _turns(messages: Sequence[Any]) -> tuple[str, tuple[Turn, ...]]:
    """The system's text and the turns: messages of the user's side that follow each other are one turn, as Bedrock has
    it, so that the same conversation is the same in both dialects."""
    system: list[str] = []
    turns: list[Turn] = []
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise invalid(f"Invalid type for 'messages[{at}]': expected an object.", f"messages[{at}]")
        role, text = message.get("role"), _text(message.get("content"), at)
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise invalid(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{at}].role",
                )
            open_calls.remove(message["tool_call_id"])
            _add(turns, Turn("user", results=(ToolResult(message["tool_call_id"], text),)))
            continue
        if open_calls:
            raise _unanswered(open_calls, at)
        if role in ("system", "developer"):
            system.append(text)
        elif role == "user":
            _add(turns, Turn("user", text))
        elif role == "assistant":
            calls = _calls(message.get("tool_calls"), at)
            open_calls = [call.id for call in calls]
            turns.append(Turn("assistant", text, calls))
        else:
            raise invalid(f"Invalid value: {role!r}. Supported values are: 'system', 'assistant', 'user', and 'tool'.",
                          f"messages[{at}].role")  # fmt: skip
    if open_calls:
        raise _unanswered(open_calls, len(messages))
    return "\n".join(system), tuple(turns)


def _add(turns: list[Turn], new: Turn) -> None:
    if turns and turns[-1].role == "user":
        last = turns.pop()
        new = Turn("user", "\n".join(filter(None, (last.text, new.text))), results=last.results + new.results)
    turns.append(new)


def _unanswered(calls: Sequence[str], at: int) -> Refusal:
    return invalid(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(calls)}",
        f"messages.[{at}].role",
    )


def _text(content: Any, at: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        return "\n".join(str(part.get("text", "")) if "text" in part else f"[{part.get('type')}]" for part in content)
    raise invalid(f"Invalid type for 'messages[{at}].content': expected a text or parts.", f"messages[{at}].content")


def _calls(calls: Any, at: int) -> tuple[ToolCall, ...]:
    try:
        return tuple(
            ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"), str(call["id"]))
            for call in calls or ()
        )
    except (KeyError, TypeError, ValueError) as error:
        where = f"messages[{at}].tool_calls"
        raise invalid(f"Invalid '{where}': {error}.", where) from error


def _tools(tools: Any) -> tuple[Tool, ...]:
    try:
        found = [each["function"] for each in tools or ()]
        return tuple(Tool(str(f["name"]), str(f.get("description") or ""), f.get("parameters") or {}) for f in found)
    except (KeyError, TypeError, AttributeError) as error:
        raise invalid("Invalid 'tools': each is a function with a name.", "tools") from error


def _choice(choice: Any) -> tuple[Literal["auto", "none", "any"], str]:
    if choice is None or (isinstance(choice, str) and choice in _CHOICES):
        return _CHOICES[choice or "auto"], ""
    if isinstance(choice, Mapping) and isinstance(function := choice.get("function"), Mapping) and function.get("name"):
        return "auto", str(function["name"])
    raise invalid(f"Invalid value: {choice!r:.80}. Supported values are: 'none', 'auto', and 'required'.",
                  "tool_choice")  # fmt: skip


def _most(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise invalid(f"Invalid '{name}': expected a whole number of at least 1, got {value!r:.40}.", name)
        if value is not None:
            return int(value)
    return None


# -- what goes out -----------------------------------------------------------------------------------------------------


def _frame(reply: Reply, kind: str) -> dict[str, Any]:
    model = reply.asked.model
    return {"id": f"chatcmpl-{reply.id('answer')}", "object": kind, "created": reply.created, "model": model}


def _call(reply: Reply, number: int, arguments: str) -> dict[str, Any]:
    function = {"name": reply.answer.calls[number].name, "arguments": arguments}
    return {"id": f"call_{reply.id(f'call {number}')}", "type": "function", "function": function}


def _usage(reply: Reply) -> dict[str, int]:
    have, gave = reply.input_tokens, reply.output_tokens
    return {"prompt_tokens": have, "completion_tokens": gave, "total_tokens": have + gave}


def _chunk(reply: Reply, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    chunk = _frame(reply, "chat.completion.chunk")
    chunk["choices"] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    if reply.asked.include_usage:
        chunk["usage"] = None
    return _data(chunk)


def _data(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + b"\n\n"


def _error(refusal: Refusal, model: str) -> dict[str, Any]:
    said = refusal.said
    error = {"message": refusal.openai_sentence(model), "type": said.type}
    return {"error": {**error, "param": refusal.param or said.param, "code": said.code}}
