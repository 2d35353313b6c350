"""Values that an update expression sets.

**On AWS** an attribute has a value of its own: of two that are set from one value of the request, or one from the
other, a later change touches one (Amazon DynamoDB Developer Guide, "Update expressions": SET assigns a value; nothing
in DynamoDB lets two attributes share one).

**MiniStack** stores the very same map, list or set twice, and a later change of the one is seen in the other.

**Here** each attribute gets a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Evaluate = Callable[..., Any]


def own(evaluate: Evaluate) -> Evaluate:
    """``evaluate``, with a result that nobody else holds."""

    def evaluated(*arguments: Any) -> Any:
        return copy.deepcopy(evaluate(*arguments))

    return evaluated


def install() -> None:
    from ministack.services import dynamodb

    dynamodb._eval_set_value = own(dynamodb._eval_set_value)
