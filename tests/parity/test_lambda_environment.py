"""What a handler finds: variables, context, packages, folders."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor

from .conftest import Aws
from .lambda_kit import GUIDE, MODEL, RECORDED, call, configure, function, invoke, replace, until
from .rows import ours, row

SHOW = "import os\ndef handler(event, context): return dict(os.environ)"


@row("lambda.environment.reserved", "A handler finds AWS's variables and its own", source=RECORDED)
def test_reserved_variables(aws: Aws) -> None:
    function(aws, "shows", SHOW, env={"TABLE": "orders", "TZ": "Asia/Tokyo", "EMPTY": ""}, MemorySize=256)
    found = invoke(aws, "shows")[2]
    assert found["LAMBDA_TASK_ROOT"]
    assert found["AWS_LAMBDA_LOG_STREAM_NAME"]
    assert found["AWS_ACCESS_KEY_ID"]
    assert found["AWS_SECRET_ACCESS_KEY"]
    assert found["AWS_SESSION_TOKEN"]
    expected = {
        "AWS_DEFAULT_REGION": aws.region,
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3.12",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_FUNCTION_NAME": "shows",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/shows",
        "AWS_REGION": aws.region,
        "_HANDLER": "index.handler",
        "TABLE": "orders",
        "TZ": "Asia/Tokyo",
        "EMPTY": "",
    }
    assert expected.items() <= found.items()
    assert found["_X_AMZN_TRACE_ID"].startswith("Root=1-")


@row("lambda.environment.trace", "The trace of the caller is the trace of the function", source=GUIDE)
def test_trace_is_passed_on(aws: Aws) -> None:
    function(aws, "shows", SHOW)
    header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    api = aws.client("lambda")

    def add(request: object, **_: object) -> None:
        request.headers["X-Amzn-Trace-Id"] = header  # type: ignore[attr-defined]

    api.meta.events.register("before-sign.lambda.Invoke", add)
    assert invoke(aws, "shows")[2]["_X_AMZN_TRACE_ID"].startswith("Root=1-5759e988-bd862e3fe1be46a994272793")


@row("lambda.environment.update", "Changed variables are there in the next invocation", source=GUIDE)
def test_changed_variables(aws: Aws) -> None:
    function(aws, "shows", SHOW, env={"STEP": "one"})
    assert invoke(aws, "shows")[2]["STEP"] == "one"
    configure(aws, "shows", Environment={"Variables": {"OTHER": "two"}})
    found = invoke(aws, "shows")[2]
    assert found["OTHER"] == "two"
    assert "STEP" not in found


@ours("the stand-in runs handlers on the reader's machine: nothing of the reader may be seen in them")
def test_nothing_of_the_reader(aws: Aws) -> None:
    source = """
    import os, sys


    def handler(event, context):
        named = [name for name in os.environ if name.startswith(("LABKIT", "VIRTUAL", "PYTHON", "LAB_", "GATEWAY"))]
        config = os.path.expanduser("~/.aws")
        found = []
        for name in ("ministack", "parity", "yaml", "hypercorn", "lambda_bootstrap", "lambda_handler"):
            try:
                __import__(name)
            except ImportError:
                continue
            found.append(name)
        return {"named": named, "config": os.path.exists(config), "home": os.environ["HOME"], "found": found}
    """
    function(aws, "looks", source)
    found = invoke(aws, "looks")[2]
    assert (found["named"], found["found"], found["config"]) == ([], [], False)
    assert "stand-in" in found["home"]


@row("lambda.environment.context", "The context has all its members; the memory limit is a string", source=RECORDED)
def test_context(aws: Aws) -> None:
    source = """
    def handler(event, context):
        names = (
            "aws_request_id", "function_name", "function_version", "invoked_function_arn", "log_group_name",
            "log_stream_name", "memory_limit_in_mb", "client_context",
        )
        left = context.get_remaining_time_in_millis()
        context.log("logged by the context\\n")
        identity = context.identity.cognito_identity_id
        return {name: getattr(context, name) for name in names} | {"left": left, "identity": identity}
    """
    arn = function(aws, "shows", source, timeout=7)
    answer = call(aws, "shows", LogType="Tail")
    found = answer["Payload"]
    assert found.pop("log_stream_name").split("/")[3].startswith("[$LATEST]")
    assert 0 < found.pop("left") <= 7000
    assert found == {
        "aws_request_id": answer["ResponseMetadata"]["RequestId"],
        "function_name": "shows",
        "function_version": "$LATEST",
        "invoked_function_arn": arn,
        "log_group_name": "/aws/lambda/shows",
        "memory_limit_in_mb": "128",
        "client_context": None,
        "identity": None,
    }
    assert "logged by the context\n" in answer["LogResult"]


@row("lambda.environment.arn", "invoked_function_arn has the qualifier that was called", source=RECORDED)
def test_invoked_arn(aws: Aws) -> None:
    source = "def handler(event, context): return [context.invoked_function_arn, context.function_version]"
    arn = function(aws, "shows", source)
    api = aws.client("lambda")
    version = api.publish_version(FunctionName="shows")["Version"]
    api.create_alias(FunctionName="shows", Name="live", FunctionVersion=version)
    assert invoke(aws, "shows", Qualifier="live")[2] == [f"{arn}:live", "1"]
    assert invoke(aws, "shows", Qualifier="1")[2] == [f"{arn}:1", "1"]
    assert invoke(aws, "shows", Qualifier="$LATEST")[2] == [f"{arn}:$LATEST", "$LATEST"]
    assert invoke(aws, "shows")[2] == [arn, "$LATEST"]


@row("lambda.environment.client_context", "The client's context is handed over", source=MODEL)
def test_client_context(aws: Aws) -> None:
    source = (
        "def handler(event, context): return [context.client_context.custom, context.client_context.client.app_title]"
    )
    function(aws, "shows", source)
    given = base64.b64encode(json.dumps({"custom": {"a": 1}, "client": {"app_title": "Shop"}}).encode()).decode()
    assert invoke(aws, "shows", ClientContext=given)[2] == [{"a": 1}, "Shop"]


@row("lambda.environment.boto3", "boto3 is there, and its calls reach the function's own account", source=GUIDE)
def test_boto3(aws: Aws) -> None:
    source = """
    import boto3

    sqs = boto3.client("sqs")


    def handler(event, context):
        url = sqs.get_queue_url(QueueName=event)["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=context.aws_request_id)
        return boto3.client("sts").get_caller_identity()["Account"]
    """
    queue = aws.client("sqs").create_queue(QueueName="out")["QueueUrl"]
    function(aws, "sends", source, timeout=20)
    answer = call(aws, "sends", "out")
    assert answer["Payload"] == aws.account
    message = until(lambda: aws.client("sqs").receive_message(QueueUrl=queue).get("Messages"))[0]
    assert message["Body"] == answer["ResponseMetadata"]["RequestId"]


@row("lambda.environment.files", "The working folder is the package's; modules and data files are found", source=GUIDE)
def test_files(aws: Aws) -> None:
    files = {
        "index.py": "import os\nfrom shop.prices import price\ndef handler(event, context):\n"
        "    root = os.environ['LAMBDA_TASK_ROOT']\n"
        "    return [price(), open('data.txt').read(), open(os.path.join(root, 'data.txt')).read()]",
        "shop/__init__.py": "",
        "shop/prices.py": "def price(): return 3",
        "data.txt": "tea",
    }
    function(aws, "reads", files)
    assert invoke(aws, "reads")[2] == [3, "tea", "tea"]
    function(aws, "nested", {"app/main.py": "def run(event, context): return __name__"}, Handler="app/main.run")
    assert invoke(aws, "nested")[2] == "app.main"


@row("lambda.environment.layers", "A layer's Python packages are found; the function's own come first", source=GUIDE)
def test_layers(aws: Aws) -> None:
    api = aws.client("lambda")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("python/tools.py", "where = 'layer'")
        archive.writestr("python/both.py", "where = 'layer'")
        archive.writestr("python/lib/python3.12/site-packages/deep.py", "where = 'deep'")
    layer = api.publish_layer_version(LayerName="tools", Content={"ZipFile": buffer.getvalue()})["LayerVersionArn"]
    files = {
        "index.py": "import both, deep, tools\n"
        "def handler(event, context): return [tools.where, both.where, deep.where]",
        "both.py": "where = 'function'",
    }
    function(aws, "layered", files, Layers=[layer])
    assert invoke(aws, "layered")[2] == ["layer", "function", "deep"]


@row("lambda.environment.new_code", "After an update of the code the next invocation runs it", source=GUIDE)
def test_new_code(aws: Aws) -> None:
    function(aws, "versioned", "def handler(event, context): return 'one'")
    assert invoke(aws, "versioned")[2] == "one"
    replace(aws, "versioned", "def handler(event, context): return 'two'")
    assert invoke(aws, "versioned")[2] == "two"


@row("lambda.environment.parallel", "Invocations at the same time have environments of their own", source=GUIDE)
def test_parallel(aws: Aws) -> None:
    source = """
    import time, uuid

    identity = uuid.uuid4().hex


    def handler(event, context):
        time.sleep(event)
        return identity
    """
    function(aws, "twice", source, timeout=20)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: invoke(aws, "twice", 6)[2], range(3)))
    assert len(set(found)) == 3
    assert invoke(aws, "twice", 0)[2] in found


@row("lambda.environment.never_old", "Once an update is done no invocation runs what was before", source=GUIDE)
def test_no_old_code_after_an_update(aws: Aws) -> None:
    source = "import time\nprint('made')\ndef handler(event, context):\n    time.sleep(0.02)\n    return {number}"
    function(aws, "changes", source.format(number=0), timeout=20)
    with ThreadPoolExecutor(4) as pool:
        for number in range(1, 9):
            busy = [pool.submit(invoke, aws, "changes") for _ in range(12)]
            replace(aws, "changes", source.format(number=number))
            after = [pool.submit(invoke, aws, "changes") for _ in range(6)]
            assert {call.result()[1] for call in busy} == {None}
            assert {call.result()[2] for call in after} == {number}
