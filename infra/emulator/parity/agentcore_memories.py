"""What makes a memory: once for a token, once for a name, and with namespaces of the model's form.

**On AWS** CreateMemory with a clientToken that was used before makes nothing and is no error. Another memory of the
same name is a ValidationException that says that it already exists (AWS's own SDK, create_or_get_memory). A strategy
has one namespace template, of letters, digits, ``-``, ``_``, ``/`` and names in braces (botocore:
bedrock-agentcore-control service model; a refusal is quoted in aws/bedrock-agentcore-sdk-python#18).

**MiniStack** knows no token, answers a name that is taken with ConflictException, and takes any namespaces.

**Here** as on AWS. Not verified: eventExpiryDuration above 365 days, which the model has as its bound of 3,650 and the
Developer Guide as 365; MiniStack refuses it. Which namespace a strategy gets that has none is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .agentcore_records import Answers
from .agentcore_requests import Refused, refusal

TEMPLATE = r"[a-zA-Z0-9\-_\/]*(\{[a-zA-Z][a-zA-Z0-9]*\}[a-zA-Z0-9\-_\/]*)*"
MAX_TEMPLATE = 512
MEMBERS = ("namespaces", "namespaceTemplates")


def templates(strategies: Any) -> Iterator[tuple[str, Any]]:
    """The lists of namespaces of all strategies, each with where it stands."""
    for number, strategy in enumerate(strategies if isinstance(strategies, list) else (), 1):
        for kind, spec in strategy.items() if isinstance(strategy, Mapping) else ():
            for member in MEMBERS:
                if isinstance(spec, Mapping) and member in spec:
                    yield f"memoryStrategies.{number}.member.{kind}.{member}", spec[member]


def check_templates(strategies: Any) -> None:
    """Raise :class:`Refused` unless all strategies have namespaces as they can be."""
    for where, namespaces in templates(strategies):
        if not isinstance(namespaces, list) or len(namespaces) != 1:
            raise refusal(where, "have length less than or equal to 1")
        text = namespaces[0]
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_TEMPLATE:
            raise refusal(where, f"have length less than or equal to {MAX_TEMPLATE}")
        if not re.fullmatch(TEMPLATE, text):
            raise refusal(where, f"satisfy regular expression pattern: {TEMPLATE}")


def install() -> None:
    from ministack.services import bedrock_agentcore as agentcore

    create, answers = agentcore._create_memory, Answers()

    def create_memory(body: Any) -> Any:
        data = agentcore._parse_body(body)
        token = data.get("clientToken")
        key = (agentcore.get_account_id(), agentcore.get_region(), token)
        before = answers.get(key) if token else None
        if before and json.loads(before[2])["memory"]["id"] in agentcore._memories:
            return before
        try:
            check_templates(data.get("memoryStrategies"))
        except Refused as error:
            return agentcore._validation(str(error))
        answer = create(body)
        if answer[0] == 409:
            return agentcore._validation(f"Memory with name {data['name']} already exists")
        if answer[0] == 202 and token:
            answers.keep(key, answer)
        return answer

    agentcore._create_memory = create_memory
