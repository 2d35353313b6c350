"""What stands in a function's log."""

from __future__ import annotations

import re

from .conftest import Aws
from .lambda_kit import GUIDE, RECORDED, REPORTED, call, function, invoke, log, replace, send, streams, until
from .rows import row

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def lines(aws: Aws, name: str, last: str = "REPORT") -> list[str]:
    """The log without INIT_START, once the line that begins with ``last`` is there."""
    found = until(lambda: (lines := log(aws, name)) and any(line.startswith(last) for line in lines) and lines)
    return [line.rstrip("\n") for line in found if not line.startswith("INIT_START")]


@row("lambda.log.lines", "START, the handler's lines, END and REPORT with the request's id", source=RECORDED)
def test_lines(aws: Aws) -> None:
    source = """
    import sys


    def handler(event, context):
        print("to standard output")
        print("to standard error", file=sys.stderr)
        print("two\\nlines")
    """
    function(aws, "talks", source)
    request = call(aws, "talks")["ResponseMetadata"]["RequestId"]
    found = lines(aws, "talks")
    assert found[:-1] == [
        f"START RequestId: {request} Version: $LATEST",
        "to standard output",
        "to standard error",
        "two",
        "lines",
        f"END RequestId: {request}",
    ]
    report = (
        rf"REPORT RequestId: {request}\tDuration: [\d.]+ ms\tBilled Duration: \d+ ms\tMemory Size: 128 MB\t"
        r"Max Memory Used: \d+ MB\tInit Duration: [\d.]+ ms\t?"
    )
    assert re.fullmatch(report, found[-1])
    invoke(aws, "talks")
    warm = until(lambda: [line for line in log(aws, "talks") if line.startswith("REPORT")][1:])
    assert "Init Duration" not in warm[0]


@row(
    "lambda.log.logging", "A record of the logging module is one event: level, time, request id, text", source=RECORDED
)
def test_logging_module(aws: Aws) -> None:
    source = """
    import logging

    logging.basicConfig(level="DEBUG", format="no effect: the root logger has a handler")
    logger = logging.getLogger("shop")


    def handler(event, context):
        logger.info("not shown: the level is WARNING")
        logger.warning("two\\nlines")
        logging.getLogger().setLevel("INFO")
        logger.info("shown %s", "now")
        try:
            1 / 0
        except ZeroDivisionError:
            logger.exception("caught")
    """
    function(aws, "logs", source)
    request = call(aws, "logs")["ResponseMetadata"]["RequestId"]
    found = lines(aws, "logs")[1:-2]
    assert len(found) == 3
    assert re.fullmatch(rf"\[WARNING\]\t{TIME}\t{request}\ttwo\nlines", found[0])
    assert re.fullmatch(rf"\[INFO\]\t{TIME}\t{request}\tshown now", found[1])
    assert re.match(rf"\[ERROR\]\t{TIME}\t{request}\tcaught\nTraceback \(most recent call last\):\n", found[2])
    assert found[2].endswith("ZeroDivisionError: division by zero")


@row("lambda.log.exception", "An uncaught exception is one event, indented with no-break spaces", source=RECORDED)
def test_uncaught_exception(aws: Aws) -> None:
    function(aws, "fails", "def handler(event, context):\n    raise ValueError('boom')")
    invoke(aws, "fails")
    event = (
        "[ERROR] ValueError: boom\nTraceback (most recent call last):\n"
        '\u00a0\u00a0File "/var/task/index.py", line 2, in handler\n'
        "\u00a0\u00a0\u00a0\u00a0raise ValueError('boom')"
    )
    assert lines(aws, "fails")[1:-2] == [event]


@row("lambda.log.timeout", "A time-out stands in the log before END, and REPORT says so", source=REPORTED)
def test_timeout(aws: Aws) -> None:
    function(
        aws, "sleeps", "import time\ndef handler(event, context):\n    print('begins')\n    time.sleep(30)", timeout=4
    )
    request = call(aws, "sleeps")["ResponseMetadata"]["RequestId"]
    found = lines(aws, "sleeps")
    assert found[1] == "begins"
    assert re.fullmatch(rf"{TIME} {request} Task timed out after 4.00 seconds", found[2].strip())
    assert found[3] == f"END RequestId: {request}"
    assert "Duration: 4000.00 ms\tBilled Duration: " in found[4]
    billed, init = (float(re.search(rf"{what} Duration: ([\d.]+) ms", found[4])[1]) for what in ("Billed", "Init"))
    assert 4000 <= billed <= 4000 + init + 1  # the Init phase is billed, too
    assert found[4].rstrip("\t").endswith("Status: timeout")


@row("lambda.log.exit", "The end of the process stands in the log before END", source=REPORTED)
def test_exit(aws: Aws) -> None:
    function(aws, "ends", "import os\ndef handler(event, context):\n    print('begins', end='')\n    os._exit(7)")
    request = call(aws, "ends")["ResponseMetadata"]["RequestId"]
    found = lines(aws, "ends")
    assert found[1:4] == [
        "begins",
        f"RequestId: {request} Error: Runtime exited with error: exit status 7\nRuntime.ExitError",
        f"END RequestId: {request}",
    ]


@row(
    "lambda.log.one_stream", "An environment has one stream for all its invocations; new code has another", source=GUIDE
)
def test_one_stream(aws: Aws) -> None:
    source = "def handler(event, context): return context.log_stream_name"
    function(aws, "talks", source)
    names = {invoke(aws, "talks")[2] for _ in range(3)}
    assert len(names) == 1
    assert re.fullmatch(r"\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}", next(iter(names)))
    until(lambda: streams(aws, "talks") == list(names))
    replace(aws, "talks", source + "  # changed")
    names.add(invoke(aws, "talks")[2])
    assert len(names) == 2
    until(lambda: sorted(streams(aws, "talks")) == sorted(names))


@row("lambda.log.while_running", "What is written is in the log while the function still runs", source=GUIDE)
def test_log_while_running(aws: Aws) -> None:
    source = "import time\ndef handler(event, context):\n    print('half way')\n    time.sleep(7)\n    print('done')"
    function(aws, "slow", source, timeout=20)
    send(aws, "slow")
    until(lambda: any("half way" in line for line in log(aws, "slow")))
    assert not any("done" in line for line in log(aws, "slow"))
    until(lambda: any("done" in line for line in log(aws, "slow")))


@row("lambda.log.nothing_lost", "No line is lost, and their order is kept", source=GUIDE)
def test_nothing_lost(aws: Aws) -> None:
    source = """
    import logging, os, sys


    def handler(event, context):
        for number in range(500):
            print(number)
            logging.warning(number)
            os.write(2, b"%d\\n" % number)
    """
    function(aws, "many", source, timeout=30)
    for _ in range(3):
        invoke(aws, "many")
    found = until(lambda: len(found := log(aws, "many")) >= 3 * 1503 and found)
    numbers = [re.sub(r"\D.*\t", "", line.strip()) for line in found if re.search(r"(^|\t)\d+\n?$", line)]
    assert numbers == [str(number) for number in range(500) for _ in range(3)] * 3


@row("lambda.log.import", "What a module prints when it is imported stands before START", source=RECORDED)
def test_output_of_the_import(aws: Aws) -> None:
    function(aws, "talks", "print('imported')\ndef handler(event, context): print('called')")
    invoke(aws, "talks")
    found = [line.split(" ")[0] for line in lines(aws, "talks")]
    assert found == ["imported", "START", "called", "END", "REPORT"]
