"""Bedrock's dialect: Converse, as ``POST /model/{modelId}/converse`` and ``…/converse-stream`` take and give it.

Users and assistants take turns, and the user begins. A tool's input is JSON; all results of a turn's calls come in the
next message, whose role is ``user`` too. The tools have to be in every request that mentions one. A stream is AWS's
binary event stream; usage and latency are its last event.

Read here: system, messages with text, toolUse and toolResult, toolConfig, inferenceConfig.maxTokens. Blocks that are no
text count as a word such as ``[image]``; cache points and the like count for nothing. Everything else is accepted and
changes nothing. Signatures are not checked.

Names and shapes are from botocore's model of bedrock-runtime; the sentences of refusals are AWS's, as quoted in public
problem reports, except where "not verified" stands beside one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from labkit.routing import eventstream
from labkit.routing.conversation import Conversation, Tool, ToolCall, ToolResult, Turn, as_json
from labkit.routing.dialects import CONTENT, END, FRAME, Event, Milliseconds, Reply, invalid, pieces
from labkit.routing.refusals import Refusal

__all__ = ["Converse"]

_STOP = {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens"}
_SILENT = {"cachePoint", "guardContent", "reasoningContent"}  # blocks that are nothing that was said
_CHOICES: dict[str, Literal["auto", "any", "tool"]] = {"auto": "auto", "any": "any", "tool": "tool"}


class Converse:
    """:class:`~labkit.routing.dialects.Dialect` of Bedrock."""

    name = "bedrock"
    stream_type = eventstream.CONTENT_TYPE

    def read(self, body: Mapping[str, Any], model: str, stream: bool) -> Conversation:
        turns = _turns(body.get("messages"))
        config = body.get("toolConfig")
        if not config and any(turn.calls or turn.results for turn in turns):
            raise invalid("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        tools, choice, forced = _tools(config or {})
        return Conversation(
            model,
            turns,
            "\n".join(_texts(body.get("system") or [], "system")),
            tools,
            choice,
            forced,
            _most(body.get("inferenceConfig")),
            stream,
        )

    def whole(self, reply: Reply, milliseconds: int) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"text": reply.answer.text}] if reply.answer.text else []
        for number, call in enumerate(reply.answer.calls):
            content.append({"toolUse": {**_use(reply, number), "input": call.input}})
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _STOP[reply.finish],
            "usage": _usage(reply),
            "metrics": {"latencyMs": milliseconds},
        }

    def events(self, reply: Reply, started: Milliseconds) -> Iterator[Event]:
        words, inputs = pieces(reply.answer)
        at = 0
        yield FRAME, eventstream.event("messageStart", {"role": "assistant"})
        for word in words:  # a block of text has no start of its own
            yield CONTENT, _delta(at, {"text": word})
        if words:
            yield FRAME, eventstream.event("contentBlockStop", {"contentBlockIndex": at})
            at += 1
        for number, parts in enumerate(inputs):
            start = {"contentBlockIndex": at, "start": {"toolUse": _use(reply, number)}}
            yield CONTENT, eventstream.event("contentBlockStart", start)
            for part in parts:
                yield CONTENT, _delta(at, {"toolUse": {"input": part}})
            yield FRAME, eventstream.event("contentBlockStop", {"contentBlockIndex": at})
            at += 1
        yield END, eventstream.event("messageStop", {"stopReason": _STOP[reply.finish]})
        metadata = {"usage": _usage(reply), "metrics": {"latencyMs": started()}}
        yield END, eventstream.event("metadata", metadata)

    def refused(self, refusal: Refusal, model: str) -> tuple[int, dict[str, str], dict[str, Any]]:
        said = refusal.said
        headers = {"x-amzn-ErrorType": f"{said.aws}:http://internal.amazon.com/coral/com.amazon.bedrock/"}
        return said.aws_status, headers, {"message": refusal.aws_sentence(model)}

    def broken(self, refusal: Refusal, model: str) -> bytes:
        name = refusal.said.aws
        # A stream has five exceptions of its own; what is none of them is the model's.
        name = name if name in _IN_STREAM else "ModelStreamErrorException"
        return eventstream.exception(name[0].lower() + name[1:], refusal.aws_sentence(model))

    def headers(self, key: str) -> dict[str, str]:
        return {"x-amzn-RequestId": "-".join((key[:8], key[8:12], f"4{key[13:16]}", f"a{key[17:20]}", key[20:32]))}


_IN_STREAM = {
    "InternalServerException", "ModelStreamErrorException", "ServiceUnavailableException", "ThrottlingException",
    "ValidationException",
}  # fmt: skip


# -- what comes in -----------------------------------------------------------------------------------------------------


def _turns(messages: Any) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    if not isinstance(messages, list) or not messages or _role(messages[0], 0) != "user":
        raise invalid("A conversation must start with a user message. Try again with a conversation that starts with a "
                      "user message.")  # fmt: skip
    for at, message in enumerate(messages):
        role, content = _role(message, at), message.get("content")
        if not isinstance(content, list) or not content:
            raise invalid(f"The content field in the Message object at messages.{at} is empty. Add a ContentBlock "
                          "object to the content field and try again.")  # fmt: skip
        if turns and turns[-1].role == role:
            raise invalid("A conversation must alternate between user and assistant roles. Make sure the conversation "
                          "alternates between user and assistant roles and try again.")  # fmt: skip
        where = f"messages.{at}.content"
        turn = Turn(role, "\n".join(_texts(content, where)), _uses(content, where), _results(content, where))
        _paired(turns[-1].calls if turns else (), turn.results, where)
        turns.append(turn)
    if turns[-1].calls:
        _paired(turns[-1].calls, (), f"messages.{len(turns)}.content")
    return tuple(turns)


def _role(message: Any, at: int) -> Literal["user", "assistant"]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role == "user":
        return "user"
    if role == "assistant":
        return "assistant"
    raise invalid(f"1 validation error detected: Value {role!r:.40} at 'messages.{at + 1}.member.role' failed to "
                  "satisfy constraint: Member must satisfy enum value set: [user, assistant]")  # fmt: skip


def _paired(calls: Sequence[ToolCall], results: Sequence[ToolResult], where: str) -> None:
    """Every call of the turn before has its result in this one, and no result is without its call."""
    if len(results) > len(calls):
        raise invalid(f"The number of toolResult blocks at {where} exceeds the number of toolUse blocks of previous "
                      "turn.")  # fmt: skip
    have = {result.id for result in results}
    if missing := [call.id for call in calls if call.id not in have]:
        raise invalid(f"Expected toolResult blocks at {where} for the following Ids: {', '.join(missing)}")


def _texts(blocks: Any, where: str) -> list[str]:
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) and block for block in blocks):
        raise invalid(f"The value at {where} is not a list of content blocks.")  # not verified
    found = []
    for at, block in enumerate(blocks):
        kind = next(iter(block))
        if kind == "text":
            if not isinstance(block["text"], str) or not block["text"].strip():
                raise invalid(f"The text field in the ContentBlock object at {where}.{at} is blank. Add text to the "
                              "text field, and try again.")  # fmt: skip
            found.append(block["text"])
        elif kind not in _SILENT and kind not in ("toolUse", "toolResult"):
            found.append(f"[{kind}]")
    return found


def _uses(blocks: Sequence[Mapping[str, Any]], where: str) -> tuple[ToolCall, ...]:
    try:
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        return tuple(ToolCall(str(use["name"]), use["input"], str(use["toolUseId"])) for use in uses)
    except (KeyError, TypeError) as error:
        raise invalid(f"A toolUse block at {where} needs toolUseId, name and input.") from error  # not verified


def _results(blocks: Sequence[Mapping[str, Any]], where: str) -> tuple[ToolResult, ...]:
    found = []
    for at, block in enumerate(blocks):
        if "toolResult" not in block:
            continue
        result = block["toolResult"]
        try:
            parts, ok = result.get("content") or [], result.get("status", "success") != "error"
            texts = [part["text"] if "text" in part else _other(part) for part in parts]
            found.append(ToolResult(str(result["toolUseId"]), "\n".join(texts), ok))
        except (KeyError, TypeError, AttributeError) as error:
            raise invalid(f"A toolResult block at {where} needs toolUseId and content.") from error  # not verified
        if not parts and not ok:
            raise invalid(f"The content field at {where}.{at}.toolResult cannot be empty when status value is error.")
    return tuple(found)


def _other(part: Mapping[str, Any]) -> str:
    return as_json(part["json"]) if "json" in part else f"[{next(iter(part), '')}]"


def _tools(config: Mapping[str, Any]) -> tuple[tuple[Tool, ...], Literal["auto", "any", "tool"], str]:
    try:
        specs = [each["toolSpec"] for each in config.get("tools", ()) if "toolSpec" in each]
        tools = tuple(Tool(str(s["name"]), str(s.get("description") or ""), s["inputSchema"]["json"]) for s in specs)
        chosen = config.get("toolChoice") or {"auto": {}}
        choice = _CHOICES[next(iter(chosen))]
        forced = str(chosen["tool"]["name"]) if choice == "tool" else ""
    except (KeyError, TypeError, AttributeError) as error:  # not verified: SDKs refuse it before it is sent
        raise invalid(
            "The toolConfig field needs tools with a toolSpec, and a toolChoice of auto, any or tool."
        ) from error
    if forced and forced not in {tool.name for tool in tools}:
        raise invalid(f"The toolChoice names the tool {forced}, which is not among the tools.")  # not verified
    return tools, choice, forced


def _most(config: Any) -> int | None:
    most = config.get("maxTokens") if isinstance(config, Mapping) else None
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise invalid(f"1 validation error detected: Value '{most!r:.40}' at 'inferenceConfig.maxTokens' failed to "
                      "satisfy constraint: Member must have value greater than or equal to 1")  # fmt: skip
    return most


# -- what goes out -----------------------------------------------------------------------------------------------------


def _use(reply: Reply, number: int) -> dict[str, str]:
    return {"toolUseId": f"tooluse_{reply.id(f'call {number}', 22)}", "name": reply.answer.calls[number].name}


def _usage(reply: Reply) -> dict[str, int]:
    have, gave = reply.input_tokens, reply.output_tokens
    return {"inputTokens": have, "outputTokens": gave, "totalTokens": have + gave}


def _delta(at: int, delta: Mapping[str, Any]) -> bytes:
    return eventstream.event("contentBlockDelta", {"contentBlockIndex": at, "delta": delta})
