"""What the entry points name. Imports are late: LocalStack loads this module at its start, the services come later."""

from __future__ import annotations

import importlib
from typing import Any

from localstack.runtime.server.core import RuntimeServer, RuntimeServerPlugin
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin
from localstack.services.plugins import Service, aws_provider


class LoopbackServerPlugin(RuntimeServerPlugin):
    name = "loopback"

    def load(self, *arguments: Any, **more: Any) -> RuntimeServer:
        from hostmode.gateway import LoopbackServer

        return LoopbackServer()


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    name = "process"

    def load(self, *arguments: Any, **more: Any) -> type:
        from hostmode.lambda_executor import ProcessExecutor

        return ProcessExecutor


def _mend(*names: str) -> None:
    for name in names:
        importlib.import_module(f"hostmode.{name}").install()


@aws_provider(api="sqs", name="lab")
def sqs() -> Service:
    _mend("sqs_queues", "sqs_handles", "sqs_order", "sqs_retention", "sqs_receive", "sqs_metrics")
    _mend("sqs_polls", "sqs_requests", "sqs_move_tasks", "sqs_errors")  # the errors last
    from localstack.services.sqs.provider import SqsProvider

    return Service.for_provider(SqsProvider())


@aws_provider(api="events", name="lab")
def events() -> Service:
    _mend("events_patterns", "events_rules", "events_put")
    _mend("events_input", "events_targets", "events_dispatch", "events_archive", "events_schedule")
    from localstack.services.events.provider import EventsProvider

    return Service.for_provider(EventsProvider())


@aws_provider(api="lambda", name="lab")
def lambda_() -> Service:
    _mend("lambda_logs", "lambda_executor", "lambda_metrics", "lambda_versions", "lambda_requests")
    _mend("lambda_recursion", "lambda_async", "esm_poller", "esm_api")
    from localstack.services.lambda_.provider import LambdaProvider

    return Service.for_provider(LambdaProvider())


@aws_provider(api="s3", name="lab")
def s3() -> Service:
    """S3 whose larger objects lie below the home, and not in a folder that all of a machine's LocalStacks share."""
    import tempfile

    from localstack.services.s3 import provider

    _ = provider.DEFAULT_S3_TMP_DIR
    provider.DEFAULT_S3_TMP_DIR = tempfile.mkdtemp(prefix="s3-")
    return Service.for_provider(provider.S3Provider())


@aws_provider(api="stepfunctions", name="lab")
def stepfunctions() -> Service:
    _mend("states")
    from localstack.services.stepfunctions.provider import StepFunctionsProvider

    return Service.for_provider(StepFunctionsProvider())


@aws_provider(api="cloudwatch", name="lab")
def cloudwatch() -> Service:
    _mend("metrics", "metrics_dimensions", "metrics_alarms")
    from localstack.services.cloudwatch.provider_v2 import CloudwatchProvider

    return Service.for_provider(CloudwatchProvider())


@aws_provider(api="dynamodb", name="lab")
def dynamodb() -> Service:
    """DynamoDB from moto-ext, which LocalStack ships with: no Java, and nothing that is not free software."""
    _mend("dynamodb_conditions", "dynamodb_updates", "dynamodb_writes")
    from localstack.aws.api.dynamodb import DynamodbApi
    from localstack.services.moto import MotoFallbackDispatcher

    return Service.for_provider(DynamodbApi(), dispatch_table_factory=MotoFallbackDispatcher)
