"""The interpreter of the Amazon States Language, and when it is loaded.

**On AWS** a definition is checked when a state machine is made or changed, and an execution follows the language's
specification to the letter: the order of the events, their previousEventId, the fields of each (Step Functions
Developer Guide, "Amazon States Language"; the histories recorded on AWS).

**MiniStack** has an interpreter of its own, whose histories agree with hardly any that was recorded on AWS.

**Here** the interpreter of moto (``moto.stepfunctions.parser``, pinned; a port of LocalStack's) evaluates definitions,
and nothing else of moto runs: no server, no mocks, no store. MiniStack keeps its store of state machines, versions,
aliases, activities, tags and executions, and its pages. The interpreter is loaded with the first call that needs it,
because that takes about a second; every other module ``states_*`` gives it a function that changes what it owns then.
A definition is parsed once (tens of milliseconds) and copied for each execution. Where LocalStack runs, the modules of
its own interpreter answer to the names of moto's, and the same changes are made in them. Not verified: the texts of
most refused definitions; the interpreter's are shown.
"""

from __future__ import annotations

import enum
import functools
import json
import logging
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from . import states_fields

PINNED = "5.2.5"
INTERPRETER = "moto.stepfunctions.parser"
KEPT_PROGRAMS = 256  # parsed definitions
KEPT_PATHS = 4096  # parsed JSONPath expressions
NOT_IN_EXPRESS = (".sync", ".sync:2", ".waitForTaskToken")

_lock = threading.RLock()
_parsing = threading.Lock()  # the parser keeps state in classes
_early: list[Callable[[], None]] = []
_changes: list[Callable[[], None]] = []
_loaded = False


class InvalidDefinition(ValueError):
    """The definition of a state machine is refused."""


class Forgetful(list[Any]):
    """A list that stays empty: the interpreter keeps every thread that it ever started in one."""

    def append(self, item: Any) -> None:
        pass


def tasks(definition: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each Task state of a parsed definition, also in branches and Map states, with its path."""
    states = definition.get("States") if isinstance(definition, dict) else None
    for name, state in states.items() if isinstance(states, dict) else ():
        if not isinstance(state, dict):
            continue
        at = f"{path}/States/{name}"
        if state.get("Type") == "Task":
            yield at, state
        for field in ("ItemProcessor", "Iterator"):
            yield from tasks(state.get(field), f"{at}/{field}")
        branches = state.get("Branches")
        for number, branch in enumerate(branches if isinstance(branches, list) else ()):
            yield from tasks(branch, f"{at}/Branches[{number}]")


def express_error(definition: Any) -> str | None:
    """Why an Express state machine cannot have this definition: it waits for nothing and polls nothing."""
    for path, state in tasks(definition):
        resource = str(state.get("Resource", ""))
        if resource.split(":")[5:6] == ["activity"]:
            return f"SCHEMA_VALIDATION_FAILED: Express state machine does not support Activity ARN at {path}/Resource"
        for pattern in NOT_IN_EXPRESS:
            if resource.endswith(pattern):
                blank = " " if pattern == ".waitForTaskToken" else ""  # as recorded on AWS
                return (
                    f"SCHEMA_VALIDATION_FAILED: Express state machine does not support '{pattern}' "
                    f"service integration{blank} at {path}/Resource"
                )
    return None


def on_load(change: Callable[[], None], *, early: bool = False) -> None:
    """Have ``change`` called when the interpreter is loaded, in the order of these calls.

    The ``early`` ones come first and import as little as they can: they replace functions that other modules of the
    interpreter take over by name when they are imported.
    """
    (_early if early else _changes).append(change)


def load() -> None:
    """Load the interpreter and change what has to be changed; only the first call does anything."""
    global _loaded
    with _lock:
        if not _loaded:
            for change in [*_early, *_changes]:
                change()
            _parser()
            _loaded = True


def check(definition: str, kind: str) -> None:
    """Raise :class:`InvalidDefinition` unless a state machine of this type can have the definition."""
    try:
        document = json.loads(definition)
    except ValueError as error:
        raise InvalidDefinition(f"INVALID_JSON_DESCRIPTION: {error}") from None
    reason = express_error(document) if kind == "EXPRESS" else None
    if reason:
        raise InvalidDefinition(reason)
    try:
        program(definition)
    except Exception as error:  # noqa: BLE001 - whatever the parser raises refuses the definition
        raise InvalidDefinition(str(error) or type(error).__name__) from None


def readable(definition: str) -> str:
    """A definition with its characters as they are: the interpreter keeps names and keys as they are written.

    Most JSON is written in ASCII; a state with an accent in its name would be called by its escape.
    """
    return states_fields.written(json.loads(definition)) if "\\u" in definition else definition


def program(definition: str) -> Any:
    """The program for one execution, its own to change."""
    load()
    return pickle.loads(_parsed(definition))


@functools.lru_cache(maxsize=KEPT_PROGRAMS)
def _parsed(definition: str) -> bytes:
    from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

    with _parsing:
        return pickle.dumps(AmazonStateLanguageParser.parse(readable(definition))[0])


def _quiet_start() -> None:
    """What must be so before anything of the interpreter is imported."""
    logging.getLogger("moto.stepfunctions").setLevel(logging.CRITICAL + 1)  # it logs inputs and tokens
    # One enumeration of Batch is needed; the package would load all of EC2 with it: a second and 130 MB.
    package, utils = types.ModuleType("moto.batch"), types.ModuleType("moto.batch.utils")
    package.__path__ = []
    names = ["SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED", "FAILED"]
    utils.JobStatus = enum.Enum("JobStatus", {name: name for name in names}, type=str)  # type: ignore[attr-defined]
    sys.modules.setdefault("moto.batch", package)
    sys.modules.setdefault("moto.batch.utils", utils)
    from moto.stepfunctions.parser import utils as common

    common.TMP_THREADS = Forgetful()


def _parser() -> None:
    from moto.stepfunctions.parser.asl.component.common.path import result_path
    from moto.stepfunctions.parser.asl.parse import asl_parser
    from moto.stepfunctions.parser.asl.parse.preprocessor import Preprocessor
    from moto.stepfunctions.parser.asl.utils import json_path

    lexer, start, enter = asl_parser.ASLLexer, Preprocessor.__init__, Preprocessor._open_query_language_scope

    def quiet_lexer(stream: Any) -> Any:
        made = lexer(stream)
        made.removeErrorListeners()  # it would print the definition to stderr
        return made

    def fresh(self: Any, *arguments: Any, **more: Any) -> None:
        start(self, *arguments, **more)
        self._query_language_per_scope = []  # of the class otherwise: one bad definition would spoil all later ones

    def open_scope(self: Any, tree: Any) -> None:
        """A state's QueryLanguage is its own; the states inside have the whole definition's or theirs."""
        around = self._query_language_per_scope
        self._query_language_per_scope = around[:1]
        enter(self, tree)
        self._query_language_per_scope = around + self._query_language_per_scope[min(1, len(around)) :]

    asl_parser.ASLLexer = quiet_lexer
    Preprocessor._open_query_language_scope = open_scope
    Preprocessor.__init__ = fresh
    json_path.parse = functools.lru_cache(maxsize=KEPT_PATHS)(json_path.parse)  # 2 ms each
    result_path.parse = functools.lru_cache(maxsize=KEPT_PATHS)(result_path.parse)


def check_pin() -> None:
    """Raise RuntimeError unless the interpreter is of the release that the modules were written for."""
    try:
        found = version("moto")
    except PackageNotFoundError:
        found = "no release"
    if found != PINNED:
        raise RuntimeError(f"The states_* modules change names of moto {PINNED}, and {found} is installed.")


def install() -> None:
    check_pin()
    on_load(_quiet_start, early=True)
