"""Provider: a model's API on this machine, that says what a script says and fails when a switch says so.

Nothing about an agent can be tested against a real model: it answers differently each time, costs money, and is down
when it likes. This provider answers by a script (:mod:`~labkit.routing.script`), fails on demand
(:mod:`~labkit.routing.faults`) and counts every call (:mod:`~labkit.routing.hits`). It speaks OpenAI's chat completions
and Bedrock's Converse, streamed or not, so that LiteLLM, boto3 and agent frameworks talk to it as they are::

    provider = Provider(Script().on(contains("capital of France"), "Paris."), lab=lab)
    bedrock = boto3.client("bedrock-runtime", endpoint_url=provider.bedrock_url, …)
    openai = {"model": "openai/primary", "api_base": provider.openai_url, "api_key": "none"}

    with provider.switch("primary", Down()):
        …                                       # 500 for every call of that model
    provider.hits.by_model                      # {'primary': {'error': 3, 'ok': 1}}

It runs in threads of this process, and whatever runs on this machine reaches it by its URL: Lambda functions, workers.
As a process of its own: ``python -m labkit.routing.serve script.json``.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from labkit.closing import Closing
from labkit.errors import LabError
from labkit.models._input import whole
from labkit.routing.chat import ChatCompletions
from labkit.routing.conversation import ToolCall
from labkit.routing.converse import Converse
from labkit.routing.dialects import CONTENT, END, Dialect, Reply, invalid
from labkit.routing.faults import Break, Call, Concurrency, ContextLength, Down, Drop, Fault, Latency, Quota, Throttle
from labkit.routing.hits import Hit, Hits
from labkit.routing.local_http import LocalServer, Request, dumped
from labkit.routing.refusals import Refusal
from labkit.routing.script import Answer, Script, Unscripted, contains
from labkit.routing.switches import Switch, Switchboard

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = [
    "Answer", "Break", "Concurrency", "ContextLength", "Down", "Drop", "Latency", "Provider", "ProviderError", "Quota",
    "Script", "Throttle", "ToolCall", "contains",
]  # fmt: skip

_CHAT, _CONVERSE = ChatCompletions(), Converse()
_CONVERSE_PATH = re.compile(r"/model/(.+)/converse(-stream)?")


class ProviderError(LabError):
    """The provider cannot be made so; the sentence says why."""


class Provider(Closing):
    """Serve ``script`` until :meth:`close`, or until ``lab`` closes.

    ``models``: the names that it knows; others are refused. None given: it answers by any name, and lists those that
    it has been asked for. A Bedrock ARN stands for the name after its last slash. ``most`` clients may be connected at
    once. ``clock`` gives seconds, for quotas and durations.
    """

    def __init__(
        self,
        script: Script,
        *,
        models: Iterable[str] = (),
        lab: Lab | None = None,
        port: int = 0,
        most: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(script, Script):
            raise ProviderError(f"script must be a labkit.routing.script.Script; got {script!r:.80}.")
        self.script, self.models = script, tuple(models)
        if isinstance(models, str) or not all(isinstance(name, str) and name for name in self.models):
            raise ProviderError(f"models must be a list of names; got {models!r:.80}.")
        self.hits = Hits(clock=clock)
        self._clock = clock
        self._board = Switchboard(self.hits, clock=clock)
        whole("port", port, low=0, high=65_535)
        whole("most", most)
        try:
            self._server = LocalServer(self._answer, name="labkit-provider", port=port, most=most)
        except OSError as error:
            raise ProviderError(f"port {port} cannot be used: {error.strerror or error}.") from error
        self.url = self._server.url
        if lab is not None:
            lab.on_close("model provider", self.close)

    @property
    def openai_url(self) -> str:
        """The base URL of OpenAI's dialect: ``base_url`` of the openai package, ``api_base`` of LiteLLM."""
        return f"{self.url}/v1"

    @property
    def bedrock_url(self) -> str:
        """The endpoint of Bedrock's dialect: ``endpoint_url`` of a ``bedrock-runtime`` client."""
        return self.url

    @property
    def switches(self) -> list[Switch]:
        """The switches that are on."""
        return self._board.switches

    def switch(self, models: str | Iterable[str], fault: Fault, *, times: int | None = None) -> Switch:
        """Put ``fault`` in front of ``models`` (a name, several, or ``"*"``), for ``times`` calls or until it is off.

        Raises :class:`~labkit.models._input.ModelError` for what cannot be.
        """
        return self._board.switch(models, fault, times=times)

    def bedrock(self, **options: Any) -> Any:
        """A boto3 ``bedrock-runtime`` client of this provider. It does not retry, so that each call is one hit;
        ``options`` are those of ``boto3.client``."""
        import boto3
        from botocore.config import Config

        options.setdefault("config", Config(retries={"total_max_attempts": 1}, proxies={}))
        keys = {"region_name": "us-east-1", "aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
        return boto3.client("bedrock-runtime", endpoint_url=self.bedrock_url, **{**keys, **options})

    def all_off(self) -> None:
        """Turn every switch off."""
        self._board.off()

    def close(self) -> None:
        """End it, at once, whoever is connected. Closing twice is harmless."""
        self._server.close()
        self.all_off()

    def __repr__(self) -> str:
        return f"<Provider of {', '.join(self.models) or 'any model'}, {self.hits.total} hits>"

    # -- one request -----------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        found = _CONVERSE_PATH.fullmatch(path)
        if request.command == "GET" and path == "/v1/models":
            names = self.models or sorted({hit.model for hit in self.hits.log})
            listed = [{"id": name, "object": "model", "created": 0, "owned_by": "lab"} for name in names]
            request.send_json(200, {"object": "list", "data": listed})
        elif request.command == "GET" and path == "/lab/hits":
            request.send_json(200, {"by_model": self.hits.by_model, "log": self.hits.rows})
        elif request.command == "POST" and path == "/v1/chat/completions":
            body = request.json
            asks = body if isinstance(body, Mapping) else {}
            self._serve(request, _CHAT, str(asks.get("model") or ""), body, bool(asks.get("stream")))
        elif request.command == "POST" and found:
            self._serve(request, _CONVERSE, unquote(found[1]), request.json, bool(found[2]))
        else:
            says = f"Nothing answers {request.command} {path[:80]} here."
            request.send_json(404, {"error": {"message": says, "type": "invalid_request_error"}, "message": says})

    def _serve(self, request: Request, dialect: Dialect, model: str, body: Any, stream: bool) -> None:
        name = model.rpartition("/")[2] if model.startswith("arn:") else model
        hit = self.hits.arrive(name, dialect.name)
        hit.stream = stream
        key = hashlib.sha256(f"{hit.number}".encode()).hexdigest()[:32]
        try:
            try:
                reply, call = self._reply(dialect, hit, model, name, body, key)
            except Refusal as refusal:
                status, headers, said = dialect.refused(refusal, name)
                self.hits.end(hit, refusal.kind)
                request.send_json(status, said, {**dialect.headers(key), **headers})
                return
            if request.gone or call.cut == 0:  # where the client has left, the work is done and paid for all the same
                self.hits.end(hit, "dropped" if call.cut == 0 else "left", reply.finish, reply.output_tokens)
                request.drop()
            elif stream:
                self._stream(request, dialect, hit, reply, call)
            else:
                self.hits.end(hit, "ok" if call.cut is None else "dropped", reply.finish, reply.output_tokens)
                send = request.send if call.cut is None else request.cut
                content = dumped(dialect.whole(reply, self._milliseconds(hit)))
                send(200, "application/json", content, dialect.headers(key).items())
        except OSError:  # nobody took the answer
            self.hits.end(hit, "left")
            raise
        except Exception:
            self.hits.end(hit, "crashed")  # and the server shows it
            raise

    def _reply(self, dialect: Dialect, hit: Hit, model: str, name: str, body: Any, key: str) -> tuple[Reply, Call]:
        """The model's answer and how it goes out, after the time that it takes. Raises :class:`Refusal`."""
        if not isinstance(body, Mapping):
            raise invalid("The body of the request is not a JSON object.")
        if not name:
            raise invalid("you must provide a model parameter", "model")
        if self.models and name not in self.models:
            raise Refusal("missing" if model.startswith("arn:") else "unknown_model")
        asked = dialect.read(body, name, hit.stream)
        hit.prompt, hit.digest, hit.input_tokens = asked.words, asked.digest, asked.input_tokens
        call = self._board.admit(hit, asked)
        if call.wait and self._server.closing.wait(call.wait):
            raise ConnectionAbortedError("the provider is closing")
        if call.fails is not None and (call.cut is None or not hit.stream):
            raise call.fails
        try:
            answer = self.script.answer(asked).within(asked.max_tokens)
        except Unscripted as slip:
            raise Refusal("unscripted", says=str(slip)) from slip
        return Reply(asked, answer, f"{asked.digest}-{key}", int(time.time())), call

    def _stream(self, request: Request, dialect: Dialect, hit: Hit, reply: Reply, call: Call) -> None:
        request.begin(200, dialect.stream_type, dialect.headers(reply.key.partition("-")[2]).items())
        sent = 0
        for what, event in dialect.events(reply, lambda: self._milliseconds(hit)):
            if call.cut is not None and (what == END or (what == CONTENT and sent == call.cut)):
                outcome = "dropped" if call.fails is None else call.fails.kind
                self.hits.end(hit, outcome, output_tokens=reply.output_tokens)
                if call.fails is not None:
                    request.chunk(dialect.broken(call.fails, reply.asked.model))
                    request.finish_chunks()
                else:
                    request.drop()
                return
            if what == END and hit.working:
                self.hits.end(hit, "ok", reply.finish, reply.output_tokens)
            if what == CONTENT:
                if sent and call.between and (self._server.closing.wait(call.between) or request.gone):
                    raise ConnectionAbortedError("the provider is closing, or nobody reads on")
                sent += 1
            request.chunk(event)
        request.finish_chunks()

    def _milliseconds(self, hit: Hit) -> int:
        return max(1, round((self._clock() - hit.arrived) * 1000))
