"""What an ItemReader reads.

**On AWS** ``s3:getObject`` reads an array in JSON, also from inside of the file (``ItemsPointer``), JSON Lines, or CSV
with its header in the first row or in the definition; a file's name that ends in .gz says that it is compressed.
``s3:listObjectsV2`` gives what S3 lists under a prefix, each object's Etag, Key, LastModified, Size and StorageClass;
with the transformation LOAD_AND_FLATTEN what is inside of those objects. Missing fields of a row are empty, further
ones are left out; a backslash takes the next character as it is. An item has at most 8 MB. Whatever cannot be read
fails the run with States.ItemReaderFailed (Step Functions Developer Guide, "ItemReader"; histories recorded on AWS).

**MiniStack** has no ItemReader. moto's interpreter reads the first thousand objects of a list and JSON and CSV, and
ends an execution with States.Runtime where S3 refuses something.

**Here** fields of a ReaderConfig that its grammar does not know are taken out of a definition before it is parsed.
Not done: Parquet, inventories and manifests, ZSTD; an object of JSON instead of an array, which is refused as recorded
(the documentation says by now that its members are items). Not verified: the texts for a pointer to nothing, for files
that are not what the definition says, and for items that are too large.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import states_fields
from .states_map_failures import failure, told

DELIMITERS = {"COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "SPACE": " ", "TAB": "\t"}
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "ItemsPointer": (),
    "CSVDelimiter": tuple(DELIMITERS),
    "Transformation": ("NONE", "LOAD_AND_FLATTEN"),
}
LARGEST_ITEM = 8 * 1024 * 1024
LISTED = ("Etag", "Key", "LastModified", "Size", "StorageClass")


class Unreadable(Exception):
    """The items cannot be read; says why."""


def understood(definition: str) -> tuple[str, dict[str, dict[str, str]]]:
    """The definition as the grammar knows it, and what it does not know of each Map state's ReaderConfig."""
    if '"ReaderConfig"' not in definition:
        return definition, {}
    document, found = json.loads(definition), {}
    for name, state in states_fields.every(document):
        reader = state.get("ItemReader")
        config = reader.get("ReaderConfig") if isinstance(reader, dict) else None
        if state.get("Type") == "Map" and isinstance(config, dict):
            found[name] = {field: _checked(name, field, config.pop(field)) for field in EXTRAS if field in config}
            if str(reader.get("Resource", "")).endswith(":s3:listObjectsV2"):
                config.setdefault("InputType", "JSON")  # of the objects; a list has none
    return states_fields.written(document), found


def _checked(name: str, field: str, value: Any) -> str:
    if not isinstance(value, str) or (EXTRAS[field] and value not in EXTRAS[field]):
        raise ValueError(f"The {field} of {name} must be {' or '.join(EXTRAS[field]) or 'a JSON Pointer'}.")
    return value


def pointed(value: Any, pointer: str) -> Any:
    """What a JSON Pointer (RFC 6901) leads to."""
    if pointer and not pointer.startswith("/"):
        raise Unreadable(f"ItemsPointer '{pointer}' is no JSON Pointer.")
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise Unreadable(f"ItemsPointer '{pointer}' leads to nothing.")
    return value


def array(text: str, pointer: str = "") -> list[Any]:
    try:
        found = pointed(json.loads(text), pointer)
    except ValueError as error:
        raise Unreadable(f"The file is no JSON: {error}") from None
    if not isinstance(found, list):
        raise Unreadable("Attempting to map over non-iterable node.")
    return found


def lines(text: str) -> Iterator[Any]:
    """The values in a file of JSON Lines."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise Unreadable(f"Line {number} of the file is no JSON: {error}") from None


def records(text: str, delimiter: str = ",", header: list[str] | None = None) -> Iterator[dict[str, str]]:
    """The rows of a file of delimited text; without a header its first row is the header."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, escapechar="\\")
        names = header if header is not None else next(rows, [])
        if len(set(names)) < len(names):
            raise Unreadable("CSV headers cannot contain duplicates.")
        for row in rows:
            if row:
                found = dict(itertools.zip_longest(names, row[: len(names)], fillvalue=""))
                yield dict(sorted(found.items(), key=lambda field: (field[0].isalpha(), field[0])))  # as recorded
    except csv.Error as error:
        raise Unreadable(f"The file is no delimited text: {error}") from None


def inside(body: bytes, key: str, config: Mapping[str, Any]) -> Iterable[Any]:
    """The items in a file."""
    try:
        text = (gzip.decompress(body) if key.endswith(".gz") else body).decode("utf-8-sig")
    except (OSError, EOFError, ValueError) as error:
        raise Unreadable(f"The file cannot be read: {error}") from None
    kind = config.get("InputType")
    if kind == "JSONL":
        return lines(text)
    if kind == "CSV":
        header = config.get("CSVHeaders") if config.get("CSVHeaderLocation") == "GIVEN" else None
        return records(text, DELIMITERS[config.get("CSVDelimiter", "COMMA")], header)
    return array(text, config.get("ItemsPointer", ""))


def bounded(items: Iterable[Any], most: int | None) -> list[Any]:
    """The first items, none of them too large."""
    found = list(itertools.islice(items, most))
    for number, item in enumerate(found):
        if len(json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()) > LARGEST_ITEM:
            raise Unreadable(f"Item {number} has more than {LARGEST_ITEM} bytes.")
    return found


def listed(s3: Any, parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What S3 lists, page after page, with the names that the items have."""
    page: dict[str, Any] = {}
    while True:
        answer = s3.list_objects_v2(**parameters, **page)
        for one in answer.get("Contents", ()):
            found = {**one, "Etag": one.get("ETag"), "LastModified": int(one["LastModified"].timestamp())}
            yield {name: found[name] for name in LISTED if found.get(name) is not None}
        if not answer.get("IsTruncated"):
            return
        page = {"ContinuationToken": answer["NextContinuationToken"]}


def read(s3: Any, action: str, parameters: Mapping[str, Any], config: Mapping[str, Any]) -> list[Any]:
    """The items, or :class:`Unreadable`, or what S3 raised."""
    most = config.get("MaxItemsValue")
    if action == "listObjectsV2":
        found: Iterable[Any] = listed(s3, parameters)
        if config.get("Transformation") == "LOAD_AND_FLATTEN":
            bucket = parameters["Bucket"]
            found = itertools.chain.from_iterable(
                inside(s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read(), one["Key"], config) for one in found
            )
        return bounded(found, most)
    body = s3.get_object(**parameters)["Body"].read()
    return bounded(inside(body, str(parameters.get("Key", "")), config), most)


def change() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_reader import item_reader_decl
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_reader.reader_config.input_type import (
        InputType,
    )

    from .states_clients import client

    reader, known_type = item_reader_decl.ItemReader, InputType.__init__

    def input_type(self: Any, input_type: str) -> None:
        if input_type == "JSONL":
            self.input_type_value = input_type
        else:
            known_type(self, input_type)

    def give(state: Any, extras: Any) -> None:
        if state.item_reader is not None:
            state.item_reader.extras = extras or {}

    def body(self: Any, env: Any) -> None:
        config = dict(self.extras)
        if self.reader_config:
            self.reader_config.eval(env=env)
            kind = self.reader_config.input_type.input_type_value
            config |= {**env.stack.pop(), "InputType": getattr(kind, "value", kind)}
        parameters: Any = {}
        if self.parargs:
            self.parargs.eval(env=env)
            parameters = env.stack.pop()
        details = env.aws_execution_details
        s3 = client(details.account, details.region, "s3")
        try:
            found = read(s3, self.resource.api_action, parameters, config)
        except Unreadable as error:
            raise failure(env, "StatesItemReaderFailed", str(error)) from None
        except Exception as error:  # noqa: BLE001 - whatever S3 refuses
            raise failure(env, "StatesItemReaderFailed", told(error)) from None
        env.stack.append(found)

    _ = reader._eval_body, item_reader_decl.resource_output_transformer_for
    states_fields.learn(understood, give)
    InputType.__init__ = input_type
    item_reader_decl.resource_output_transformer_for = lambda input_type: None
    reader._eval_body = body


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
