"""The command line: ``labkit doctor | up | down | status | env | lab | run | trace | triage | workshop``.

Exit codes: 0 well, 1 a fault that the sentence on stderr names, 2 wrong words.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from labkit.errors import LabError

_TO_BEGIN_AND_END = 60.0  # seconds that a worker may take beside its --seconds

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Agent Fleet Lab: the stand-in for AWS, and what a reader needs around it.",
)


@app.command()
def doctor() -> None:
    """Look for what could keep the course from running, and say what to type for each fault."""
    from labkit.doctor import examine

    sick = 0
    for finding in examine():
        sick += not finding.well
        print(f"{'ok  ' if finding.well else 'FAIL'} {finding.what}: {finding.seen}", flush=True)
        if not finding.well:
            print(f"     type: {finding.remedy}", flush=True)
    if sick:
        raise LabError(f"{sick} of the examinations failed.")
    print("All is well.")


@app.command()
def up(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="insist on this port")] = None,
    target: Annotated[str | None, typer.Option(help="embedded or localstack; else LABKIT_TARGET")] = None,
    host_mode: Annotated[bool, typer.Option("--host-mode", help="LocalStack without Docker, also where it is")] = False,
) -> None:
    """Start what stands in for AWS, unless it runs already: the stand-in, or LocalStack (with Docker, else without)."""
    from labkit import embedded, localstack, targets

    name = targets.chosen(target)
    if name == "localstack":
        found = localstack.ensure(docker=not host_mode, port=port)
        print(f"localstack: {found.says}.")
        if found.lacking:
            companion = embedded.beside(found.endpoint).ensure()
            print(f"  beside it, the stand-in at {companion.endpoint} answers for {', '.join(found.lacking)}.")
        if target and targets.chosen() != target:
            print("  `LABKIT_TARGET=localstack make lab` opens the course on it. `labkit down` ends what began here.")
        return
    if name == "aws":
        if targets.chosen() != name:
            raise LabError("a real account is chosen with LABKIT_TARGET=aws and LABKIT_AWS_ACCOUNT, and nothing else.")
        print(f"aws: {targets.connect().says}")
        return
    running = embedded.SERVER.ensure(port)
    print(f"embedded: MiniStack {running.version} with the parity modules at {running.endpoint}, {running.note}.")


@app.command()
def down() -> None:
    """End what was started here: the stand-in, LocalStack, with everything they started. Harmless when none runs."""
    from labkit import embedded, localstack
    from labkit.state import postgres

    port = embedded.SERVER.stop()
    print("embedded: none was running." if port is None else f"embedded: ended (port {port or 'not recorded'}).")
    beside = ["the stand-in beside it"] if embedded.beside("").stop() is not None else []
    ended = [*localstack.stop(), *beside]
    print(f"localstack: ended {' and '.join(ended)}." if ended else "localstack: none was running.")
    with contextlib.suppress(LabError):  # no home, or none that PostgreSQL could be in
        if postgres.end_left():
            print("postgresql: ended one that had lost its keeper.")


def _status() -> dict[str, Any]:
    import importlib.metadata

    from labkit import embedded, localstack, places, targets

    name = targets.chosen()
    state: dict[str, Any] = {"target": name, "region": targets.region(), "running": False}
    versions: dict[str, Any] = {}
    if name == "aws":
        state |= {"running": True, "endpoint": targets.connect().endpoint, "pid": None}
    else:
        state |= {"endpoint": None, "pid": None, "home": str(places.home())}
        server = embedded.SERVER if name == "embedded" else localstack.SERVER
        if name == "embedded":
            process = server.running()
            if process:
                state |= {"running": True, "endpoint": process.endpoint, "pid": process.pid}
                versions["ministack"] = process.version
            elif (hangs := server.recorded()) and server.process(hangs):
                state |= {"pid": hangs.pid, "reason": "it is there; `labkit up` ends it, and starts an empty one"}
        elif found := _localstack(state):
            state |= {"running": True, "endpoint": found.endpoint, "how": found.how}
            state["pid"] = found.running.pid if found.running else None
            companion = embedded.beside(found.endpoint).running()
            where = companion.endpoint if companion else None
            state["beside"] = dict.fromkeys(found.lacking, where)
            versions["localstack"] = found.version
        state["log"] = str(server.log_file())
    packages = ("labkit", "boto3", "litellm", "jupyterlab")
    state["versions"] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        **{package: _version(importlib.metadata, package) for package in packages},
        **versions,
    }
    return state


def _localstack(state: dict[str, Any]) -> Any:
    """The LocalStack that answers; why there is none goes into ``state``."""
    from labkit import localstack

    try:
        return localstack.find()
    except LabError as error:
        state["reason"] = str(error)
        return None


def _version(metadata: Any, package: str) -> str | None:
    try:
        return str(metadata.version(package))
    except metadata.PackageNotFoundError:
        return None


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False) -> None:
    """Say which target is chosen, where it answers, and the versions at work. Starts nothing."""
    state = _status()
    if as_json:
        print(json.dumps(state, indent=2))
        return
    from labkit import localstack

    where = "does not answer" if state["pid"] else "is not running (labkit up starts it)"
    if state["running"]:
        where = f"answers at {state['endpoint'] or 'AWS'}"
    print(f"{state['target']} {where}" + (f", {state['how']}" if state.get("how") else ""))
    if state.get("reason"):
        print(f"  {state['reason']}")
    other = localstack.SERVER.running() if state["target"] != "localstack" else None
    if other:
        print(f"  LocalStack runs as well, at {other.endpoint} (LABKIT_TARGET=localstack)")
    for service, endpoint in state.get("beside", {}).items():
        print(f"  {service}: the embedded stand-in, {endpoint or 'started with the first call'}")
    for key in ("pid", "home", "log"):
        if state.get(key):
            print(f"  {key}: {state[key]}")
    print("  " + ", ".join(f"{name} {version}" for name, version in state["versions"].items() if version))


@app.command()
def env(lab: Annotated[str, typer.Argument(help="the lab whose account to use")] = "00-start-here") -> None:
    """Print shell lines that point the AWS CLI and any SDK at the target: eval "$(labkit env 03-queues)"."""
    from labkit import targets

    ready = targets.connect()
    if ready.endpoint is None:
        raise LabError("the target is AWS itself: your own environment points there already.")
    account = targets.account_for(targets.learner(), lab)
    for service in ready.beside[:1]:  # one process answers for all of them
        ready.endpoint_of(service)
    for name, value in ready.environment(account).items():
        print(f"export {name}={shlex.quote(value)}")
    print("unset AWS_PROFILE AWS_SESSION_TOKEN")


@app.command()
def lab(
    check: Annotated[
        bool, typer.Option("--check", help="do everything but open a browser, and say whether it works")
    ] = False,
) -> None:
    """Start the stand-in and open JupyterLab on notebook 00 (prints the address where no browser is there)."""
    from labkit import jupyter

    raise typer.Exit(jupyter.check() if check else jupyter.open_lab())


@app.command()
def run(
    target: Annotated[str, typer.Argument(help="module:function that makes the worker")],
    processes: Annotated[int, typer.Option(min=1, max=64, help="how many, each with its worker")] = 1,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="end when nothing is left in the queue")] = False,
    seconds: Annotated[float | None, typer.Option(min=0, help="end after so many seconds")] = None,
) -> None:
    """Run a worker until it is told to stop (SIGTERM, Ctrl-C); replace processes that die."""
    from labkit.work.processes import Processes

    arguments = ["--until-empty"] * until_empty + (["--seconds", str(seconds)] if seconds is not None else [])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the wait, and with it the block
    running = Processes(target, processes, arguments=arguments)
    with contextlib.suppress(KeyboardInterrupt), running:  # a second one comes in stop(), which kills them then
        # A worker that hangs before it begins does not look at the clock.
        running.wait(math.inf if seconds is None else seconds + _TO_BEGIN_AND_END)
    print(", ".join(f"{kind} {number}" for kind, number in sorted(running.counts.items())) or "no deliveries")


@app.command()
def trace(
    wanted: Annotated[str, typer.Argument(help="a W3C trace id, or the work's name as its envelope has it")],
    lab: Annotated[str | None, typer.Option(help="also what this lab's functions logged, and its executions")] = None,
    file: Annotated[Path | None, typer.Option(help="a file or folder of spans; else traces in the lab's home")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Draw a trace: the tree of its spans, and where the time went."""
    from labkit.ops import trace_view
    from labkit.ops.spans import files
    from labkit.ops.spans.lab import from_logs, with_states
    from labkit.ops.triage.command import Account

    if file is not None and not file.exists():
        raise LabError(f"there is no file or folder {file} with spans.")
    records = list(files.read(file))
    clients = None if lab is None else Account(lab)  # without opening it: it may be open in a notebook
    if clients:
        records += from_logs(clients)
    found = trace_view.find(records, wanted)
    if clients:
        found = trace_view.gather(with_states(clients, [each for one in found for each in one.records]))
    if as_json:
        print(json.dumps([each.as_json() for each in found], indent=2))
        return
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no bars shows question marks
    console = Console()
    for each in found:
        console.print(each.tree())
        for line in each.waterfall(console.width):
            console.print(line, markup=False, highlight=False, overflow="crop")


@app.command()
def triage(
    queue: Annotated[str, typer.Argument(help="a dead-letter queue: URL, ARN or name")],
    lab: Annotated[str | None, typer.Option(help="in this lab's account; else in the environment's")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="look at so many letters, not at all")] = None,
    only: Annotated[list[str] | None, typer.Option("--class", help="this class or reason; may be repeated")] = None,
    examples: Annotated[int, typer.Option(min=0, max=100, help="so many of each kind")] = 1,
    bodies: Annotated[bool, typer.Option("--bodies", help="with their bodies, task tokens masked")] = False,
    redrive: Annotated[bool, typer.Option("--redrive", help="say what would be sent back, and where")] = False,
    to: Annotated[str | None, typer.Option(help="send to this queue, function or machine instead")] = None,
    canary: Annotated[int, typer.Option(min=0, max=10, help="letters to send first and watch")] = 3,
    within: Annotated[float, typer.Option(help="seconds in which the canary must be well")] = 120.0,
    rate: Annotated[int | None, typer.Option(help="messages a second of a move task")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="with --redrive: do it")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Say what a dead-letter queue holds, by class of failure, and what to do; with --redrive --yes, send it back."""
    from labkit.ops.triage import command

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # everything in hand is given back
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # letters of any language, in a terminal of one
    asked = command.Asked(
        queue, lab, sample, tuple(only or ()), examples, bodies, redrive, to, canary, within, rate, yes
    )
    for line in command.run(asked, as_json=as_json):
        print(line, flush=True)


@app.command()
def workshop(folder: Annotated[Path, typer.Argument(help="where to write the learners' copies")]) -> None:
    """Write the notebooks without solutions and outputs, for a class."""
    from labkit import places
    from labkit.teach.learner import strip_file

    if folder.exists() and any(folder.iterdir()):
        raise LabError(f"{folder} is not empty; name a new folder, so that nobody's answers are overwritten.")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted((places.repository() / "notebooks").glob("*.ipynb")):
        blanked = strip_file(source, folder / source.name)
        print(f"{folder / source.name}: {blanked} solutions taken out")


def main() -> None:
    """The entry point: a fault is one sentence on stderr and exit code 1, never a traceback."""
    try:
        app()
    except (LabError, OSError) as error:
        print(f"labkit: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
