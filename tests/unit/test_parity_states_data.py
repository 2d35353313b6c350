"""Items that Map runs read, results that they leave, functions of JSONata: without the interpreter."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity import states_items as items
from parity import states_jsonata, states_results
from parity.states_descriptions import moment
from parity.states_jsonata_functions import FUNCTIONS, drawn, partition, ranged

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)
RUN = "arn:aws:states:r:1:mapRun:m/l:id"


def mapped(**more: Any) -> str:
    return json.dumps({"StartAt": "M", "States": {"M": {"Type": "Map", **more}}})


@given(size=st.integers(1, 10), found=st.lists(st.integers()))
def test_partitions_keep_the_order(size: int, found: list[int]) -> None:
    parts = partition(found, size + 0.5)
    assert [item for part in parts for item in part] == found
    assert all(len(part) == size for part in parts[:-1])
    assert all(1 <= len(part) <= size for part in parts)


@given(first=st.integers(-50, 50), last=st.integers(-50, 50), step=st.integers(-9, 9).filter(bool))
def test_ranges_stay_between_their_ends(first: int, last: int, step: int) -> None:
    found = ranged(first, last, step)
    assert all(min(first, last) <= number <= max(first, last) for number in found)
    assert all(after - before == step for before, after in itertools.pairwise(found))
    assert (first in found) == ((last - first) * step >= 0)


@given(seed=st.integers())
def test_a_seed_gives_one_number(seed: int) -> None:
    assert drawn(seed) == drawn(seed)
    assert 0 <= drawn(seed) < 1


def test_functions_refuse() -> None:
    with pytest.raises(ValueError, match="greater than zero"):
        partition([1], 0)
    with pytest.raises(ValueError, match="not be zero"):
        ranged(1, 2, 0)
    with pytest.raises(ValueError, match="more than"):
        ranged(0, 10**9, 1)
    with pytest.raises(ValueError, match="Expected a number"):
        drawn("x")
    with pytest.raises(ValueError, match="algorithm"):
        FUNCTIONS["hash"]("a", "MD4")
    for name, more in (("hash", ["MD5"]), ("parse", [])):
        with pytest.raises(ValueError, match="Expected a string"):
            FUNCTIONS[name](1, *more)


def test_nothing_comes_to_nothing() -> None:
    arguments: dict[str, list[Any]] = {"partition": [1], "range": [1, 1], "hash": ["MD5"], "parse": []}
    for name, more in arguments.items():
        assert FUNCTIONS[name](None, *more) is None
    assert FUNCTIONS["uuid"]() != FUNCTIONS["uuid"]()
    assert FUNCTIONS["parse"]('{"a": null}') == {"a": None}


@given(value=values)
def test_only_numbers_fit_where_numbers_are_needed(value: Any) -> None:
    told = states_jsonata.mismatch("TimeoutSeconds", value)
    number = isinstance(value, int) and not isinstance(value, bool)
    assert (told is None) is number
    assert states_jsonata.mismatch("Output", value) is None


def test_pointers() -> None:
    document = {"a": {"b/c": [1, {"~": 2}]}, "": 3}
    assert items.pointed(document, "") == document
    assert items.pointed(document, "/a/b~1c/1/~0") == 2
    assert items.pointed(document, "/") == 3
    for pointer in ("a", "/x", "/a/b~1c/2", "/a/b~1c/-", "/a/b~1c/0/x"):
        with pytest.raises(items.Unreadable):
            items.pointed(document, pointer)


@given(
    rows=st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\\\r\n\x00")), min_size=2, max_size=2)
    )
)
def test_rows_come_back_as_they_were_written(rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter="|").writerows(rows)
    found = list(items.records(file.getvalue(), "|", ["a", "b"]))
    assert found == [{"a": a, "b": b} for a, b in rows]


def test_rows() -> None:
    text = 'a,b\n1,"x, ""y"""\n2\n3,4,5\n\nC:\\\\dir,p\\,q\n'
    assert list(items.records(text)) == [
        {"a": "1", "b": 'x, "y"'},
        {"a": "2", "b": ""},
        {"a": "3", "b": "4"},
        {"a": "C:\\dir", "b": "p,q"},
    ]
    assert list(items.records("")) == []
    with pytest.raises(items.Unreadable, match="duplicates"):
        list(items.records("a,a\n1,2\n"))


def test_what_a_file_has() -> None:
    jsonl = {"InputType": "JSONL"}
    assert list(items.inside(b'{"a":1}\n\n2\n', "x", jsonl)) == [{"a": 1}, 2]
    assert list(items.inside(gzip.compress(b"[1, 2]"), "x.gz", {"InputType": "JSON"})) == [1, 2]
    for body, key, config in ((b"{", "x", jsonl), (b"[1]", "x.gz", jsonl), (b"\xff", "x", jsonl), (b"3", "x", {})):
        with pytest.raises(items.Unreadable):
            list(items.inside(body, key, config))
    assert items.bounded(iter([1, 2, 3]), 2) == [1, 2]
    with pytest.raises(items.Unreadable, match="Item 1"):
        items.bounded([1, "x" * items.LARGEST_ITEM], None)


class Pages:
    """A bucket of two pages."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        number = len(self.asked)
        one = {"Key": f"k{number}", "ETag": '"e"', "Size": number, "LastModified": datetime(2026, 1, 1, tzinfo=UTC)}
        return {"Contents": [one], "IsTruncated": number < 2, "NextContinuationToken": "t"}


def test_lists_go_on_to_the_last_page() -> None:
    s3 = Pages()
    found = items.read(s3, "listObjectsV2", {"Bucket": "b"}, {"MaxItemsValue": 100})
    assert [one["Key"] for one in found] == ["k1", "k2"]
    assert found[0] == {"Etag": '"e"', "Key": "k1", "LastModified": 1767225600, "Size": 1}
    assert s3.asked == [{"Bucket": "b"}, {"Bucket": "b", "ContinuationToken": "t"}]
    s3 = Pages()
    assert len(items.read(s3, "listObjectsV2", {"Bucket": "b"}, {"MaxItemsValue": 1})) == len(s3.asked) == 1


def test_fields_of_readers_that_the_grammar_does_not_know() -> None:
    reader = {"Resource": "arn:aws:states:::s3:getObject", "ReaderConfig": {"InputType": "JSON", "ItemsPointer": "/a"}}
    text, found = items.understood(mapped(ItemReader=reader))
    assert found == {"M": {"ItemsPointer": "/a"}}
    assert json.loads(text)["States"]["M"]["ItemReader"]["ReaderConfig"] == {"InputType": "JSON"}
    for config in ({"CSVDelimiter": "DOT"}, {"Transformation": 1}):
        with pytest.raises(ValueError, match="of M must be"):
            items.understood(mapped(ItemReader={"ReaderConfig": config}))


def row(status: str, output: Any = None) -> dict[str, Any]:
    return {"Status": status, "Output": json.dumps(output)} if status == "SUCCEEDED" else {"Status": status}


@given(outputs=st.lists(values), largest=st.integers(10, 60), kind=st.sampled_from(["JSON", "JSONL"]))
def test_files_have_all_values_in_order_and_their_size(outputs: list[Any], largest: int, kind: str) -> None:
    files = states_results.files(outputs, kind, largest)
    read = [json.loads(body) if kind == "JSON" else [json.loads(line) for line in body.splitlines()] for body in files]
    assert [value for part in read for value in part] == outputs
    assert all(len(body) <= largest or len(part) == 1 for body, part in zip(files, read, strict=True))


@given(outputs=st.lists(values))
def test_transformations(outputs: list[Any]) -> None:
    rows = [row("SUCCEEDED", output) for output in outputs] + [row("FAILED")]
    assert states_results.transformed(rows, "NONE") == rows
    assert states_results.transformed(rows, "COMPACT") == [*outputs, row("FAILED")]
    flat = [one for output in outputs for one in (output if isinstance(output, list) else [output])]
    assert states_results.transformed(rows, "FLATTEN") == [*flat, row("FAILED")]


def test_the_manifest_names_several_files() -> None:
    rows = [row("SUCCEEDED", number) for number in range(3)]
    rows += [row("FAILED"), row("ABORTED"), row("TIMED_OUT"), row("PENDING")]
    config = {"Transformation": "COMPACT"}
    files = states_results.manifest("bucket", "out/", RUN, rows, config=config, largest=5)
    listed = json.loads(files["out/id/manifest.json"])["ResultFiles"]
    assert [file["Key"] for file in listed["SUCCEEDED"]] == ["out/id/SUCCEEDED_0.json", "out/id/SUCCEEDED_1.json"]
    assert (files["out/id/SUCCEEDED_0.json"], files["out/id/SUCCEEDED_1.json"]) == (b"[0,1]", b"[2]")
    assert (len(listed["FAILED"]), len(listed["PENDING"])) == (3, 1)
    assert all(file["Size"] == len(files[file["Key"]]) for group in listed.values() for file in group)
    assert "id/Redrive-2/manifest.json" in states_results.manifest("b", "", RUN, rows, redrive=2)


def test_rows_of_children() -> None:
    waiting = SimpleNamespace(record=None, value={"a": 1}, status="PENDING")
    assert states_results.row(waiting, "m") == {"Input": '{"a": 1}', "StateMachineArn": "m", "Status": "PENDING"}


def test_fields_of_writers_that_the_grammar_does_not_know() -> None:
    config = {"Transformation": "FLATTEN", "OutputType": "JSONL"}
    writer = {"Resource": "arn:aws:states:::s3:putObject", "Parameters": {"Bucket": "b"}, "WriterConfig": config}
    text, found = states_results.understood(mapped(ResultWriter=writer))
    assert found == {"M": {"WriterConfig": config}}
    assert json.loads(text)["States"]["M"]["ResultWriter"].keys() == {"Resource", "Parameters"}
    text, found = states_results.understood(mapped(ResultWriter={"WriterConfig": config}))
    assert (found["M"]["WriterConfig"], "ResultWriter" in text) == (config, False)
    plain = mapped(ResultWriter={"Resource": "r", "Parameters": {"Bucket": "b"}})
    assert states_results.understood(plain) == (plain, {})
    for wrong in ({}, {"Transformation": "SOME"}, {"Other": "NONE"}, None):
        with pytest.raises(ValueError, match="WriterConfig of M"):
            states_results.understood(mapped(ResultWriter={"WriterConfig": wrong}))


def test_executions_are_listed_by_their_last_change() -> None:
    record = {"status": "RUNNING", "startDate": "1", "stopDate": None}
    assert moment(record) == "1"
    assert moment(record | {"redriveDate": "3"}) == "3"
    assert moment(record | {"status": "FAILED", "stopDate": "2"}) == "2"
