"""How a Task state calls another service.

**On AWS** an integration calls the service with the state machine's role, or with the role in ``Credentials``; the
parameters and results are the API's with their own capitals, and an error is named after the service and its code
(Step Functions Developer Guide, "Integrating services", "Access resources in other AWS accounts").

**MiniStack** calls a few services through their functions. moto's interpreter would call AWS itself, and would make a
client of botocore (tens of milliseconds) for each call.

**Here** the clients talk to the stand-in's own endpoint, one for each account, Region and service, shared by all
executions. The account is the state machine's, unless ``Credentials`` names a role: then it is that role's. That the
role may do what the state asks is not checked.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

CONNECTIONS = 64  # of one client at the same time
LONGEST_CALL = 960.0  # seconds: a function may take 900

_lock = threading.Lock()


def account_of(role_arn: str) -> str:
    """The account in the ARN of a role."""
    parts = role_arn.split(":")
    return parts[4] if len(parts) > 5 else ""


@functools.lru_cache(maxsize=1024)
def _client(account: str, region: str, service: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        service,
        endpoint_url=f"http://127.0.0.1:{os.environ['GATEWAY_PORT']}",
        region_name=region,
        aws_access_key_id=account,
        aws_secret_access_key="test",
        config=Config(
            parameter_validation=False,
            retries={"total_max_attempts": 1},  # a state's Retry is what repeats
            connect_timeout=5,
            read_timeout=LONGEST_CALL,
            max_pool_connections=CONNECTIONS,
            s3={"addressing_style": "path"},
        ),
    )


MAKERS: list[Callable[[str, str, str], Any]] = [_client]  # the last one counts


def client(account: str, region: str, service: str) -> Any:
    """The shared client of one account, Region and service."""
    with _lock:
        return MAKERS[-1](account, region, service)


def boto_client_for(region: str, service: str, state_credentials: Any = None) -> Any:
    """The interpreter's way to a client."""
    return client(
        getattr(state_credentials, "account", None) or account_of(state_credentials.role_arn), region, service
    )


def change_early() -> None:
    from moto.stepfunctions.parser.asl.utils import boto_client

    _ = boto_client.boto_client_for
    boto_client.boto_client_for = boto_client_for


def change() -> None:
    _account()
    _models()
    bound = [
        name
        for name, module in list(sys.modules.items())
        if name.startswith("moto.stepfunctions.parser")
        and getattr(module, "boto_client_for", boto_client_for) is not boto_client_for
    ]
    if bound:
        raise RuntimeError(f"These modules were imported before their clients could be replaced: {bound}.")


def _account() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask

    evaluate = StateTask._eval_state_credentials

    def credentials(self: Any, env: Any) -> Any:
        found = evaluate(self, env)
        if not self.credentials:
            found.account = env.aws_execution_details.account
        return found

    StateTask._eval_state_credentials = credentials


def _models() -> None:
    """The service models, read once; moto's port reads them for each call, and finds not all of them."""
    from botocore.session import get_session
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (
        state_task_service as base,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (
        state_task_service_aws_sdk as sdk,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (
        state_task_service_lambda as function,
    )
    from moto.stepfunctions.parser.utils import camel_to_snake_case

    session, lock = get_session(), threading.Lock()

    @functools.cache
    def model(service: str) -> Any:
        with lock:
            return session.get_service_model(service)

    @functools.lru_cache(maxsize=512)
    def operation(service: str, action: str) -> Any:
        names = {camel_to_snake_case(name): name for name in model(service).operation_names}
        if action not in names:
            raise RuntimeError(f"No api action named '{action}' available for service '{service}'.")
        return model(service).operation_model(names[action])

    def of(self: Any, service: str | None, action: str | None) -> Any:
        return operation(self._get_boto_service_name(service), self._get_boto_service_action(action))

    def request(
        self: Any, parameters: Any, boto_service_name: str | None = None, service_action_name: str | None = None
    ) -> None:
        shape = of(self, boto_service_name, service_action_name).input_shape
        if shape is not None:
            self._to_boto_request(parameters, shape)

    def response(
        self: Any, response: Any, boto_service_name: str | None = None, service_action_name: str | None = None
    ) -> None:
        shape = of(self, boto_service_name, service_action_name).output_shape
        if shape is not None:
            self._from_boto_response(response, shape)

    def error_name(service_name: str) -> str:
        known = {"dynamodb": "DynamoDb", "sfn": "Sfn", "sqs": "Sqs", "sns": "Sns"}
        return known.get(service_name) or str(model(service_name).service_id).replace(" ", "")

    _ = base.StateTaskService._normalise_parameters, base.StateTaskService._normalise_response
    _ = sdk.StateTaskServiceAwsSdk._normalise_service_error_name
    base.StateTaskService._normalise_parameters = request
    base.StateTaskService._normalise_response = response
    sdk.StateTaskServiceAwsSdk._normalise_service_error_name = staticmethod(error_name)
    function._SUPPORTED_API_PARAM_BINDINGS["invoke"].add("InvocationType")


def install() -> None:
    from . import states_engine

    states_engine.on_load(change_early, early=True)
    states_engine.on_load(change)
