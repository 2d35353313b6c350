"""The errors of SQS, on LocalStack's wire.

**On AWS**: see :mod:`parity.sqs_errors` and :mod:`parity.sqs_wire`.

**LocalStack** raises exceptions whose class name is the code of a batch entry, and puts ``Code`` before ``Type`` in the
Query protocol.

**Here** what the rules refuse is translated where LocalStack's operations end: install this module as the last one of
SQS.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from parity.sqs_errors import SqsError
from parity.sqs_wire import SHAPES

CODES = {shape: code for code, shape in SHAPES.items()}


def understood(error: Any) -> SqsError:
    """A ``ServiceException`` of LocalStack as an error of the rules."""
    return SqsError(CODES.get(error.code, error.code), str(error), error.status_code)


def refusing(operation: Callable[..., Any]) -> Callable[..., Any]:
    """``operation``, with the errors of the rules as LocalStack's."""
    from localstack.aws.api import CommonServiceException

    @functools.wraps(operation)
    def handle(*arguments: Any, **given: Any) -> Any:
        try:
            return operation(*arguments, **given)
        except SqsError as error:
            shape = SHAPES.get(error.code, error.code)
            # LocalStack's JSON protocol shows the name of the class.
            kind = type(shape, (CommonServiceException,), {})
            raise kind(shape, error.message, error.status, sender_fault=True) from error

    return handle


def install() -> None:
    from localstack.aws.api.sqs import SqsApi
    from localstack.aws.protocol.serializer import SqsQueryResponseSerializer
    from localstack.services.sqs.provider import SqsProvider

    names = [name for name, member in vars(SqsApi).items() if hasattr(member, "operation")]
    for name in names:
        setattr(SqsProvider, name, refusing(getattr(SqsProvider, name)))

    add_tags = SqsQueryResponseSerializer._add_error_tags

    def type_first(self: Any, error: Any, error_tag: Any, mime_type: str) -> None:
        add_tags(self, error, error_tag, mime_type)
        for tag in error_tag.findall("Type"):
            error_tag.remove(tag)
            error_tag.insert(0, tag)

    SqsQueryResponseSerializer._add_error_tags = type_first
