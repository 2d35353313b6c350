"""How SQS reads a request: types, message attributes, names of queues."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity.sqs_attributes import check_attributes, check_system_attributes, printable, size_of_attributes
from parity.sqs_errors import SqsError
from parity.sqs_queues import check_name, check_readable, check_settable, page_limit, page_start
from parity.sqs_requests import answer_each, check_batch, check_message
from parity.sqs_shapes import INPUTS, parse, read_request

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800")
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
MEMBERS = sorted({name for members in INPUTS.values() for name in members})


@settings(deadline=None)
@given(st.sampled_from(sorted(INPUTS)), st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=4) | JSON)
def test_a_request_is_read_or_refused(action: str, data: Any) -> None:
    refusal = None
    try:
        read = read_request(action, data)
    except SqsError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code in ("SerializationException", "InvalidParameterValue")
        assert refusal.status == 400
        return
    assert set(read) <= set(data) & set(INPUTS[action])
    assert None not in read.values()
    assert read_request(action, read) == read


def test_the_shapes_are_those_of_the_service_model() -> None:
    botocore = pytest.importorskip("botocore.session")
    model = botocore.get_session().get_service_model("sqs")
    assert set(INPUTS) == set(model.operation_names)
    kinds = {"string": "text", "integer": "int", "list": "list", "map": "map"}
    for action, members in INPUTS.items():
        shape = model.operation_model(action).input_shape
        assert set(members) - {"Tags"} == set(shape.members) - {"Tags"}
        for name, member in shape.members.items():
            assert kind_of(members[name]) == kinds[member.type_name], (action, name)


def kind_of(shape: Any) -> str:
    names = {"list": "list", "Map": "map", "Raw": "text"}
    return {str: "text", int: "int"}[shape] if isinstance(shape, type) else names[type(shape).__name__]


@pytest.mark.parametrize(
    "value", [True, 1.5, "1", "x", [], {}, 2**31, -(2**31) - 1, float("inf"), float("nan")], ids=repr
)
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(SqsError):
        read_request("ReceiveMessage", {"MaxNumberOfMessages": value})


def test_null_counts_as_absent_and_what_is_unknown_is_left_out() -> None:
    data = {"QueueUrl": "q", "WaitTimeSeconds": None, "Else": 1, "MaxNumberOfMessages": 5.0}
    assert read_request("ReceiveMessage", data) == {"QueueUrl": "q", "MaxNumberOfMessages": 5}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"null", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_what_is_no_json_object(body: bytes) -> None:
    with pytest.raises(SqsError) as caught:
        parse(body)
    assert caught.value.code == "SerializationException"


# -- message attributes --------------------------------------------------------------------------------------------


def text(value: Any, kind: Any = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


@pytest.mark.parametrize("name", ["a", "A_b-c.9", "attr.1øßä", "awsome", "aws", "a" * 255])
def test_good_names(name: str) -> None:
    check_attributes({name: text("x")})


@pytest.mark.parametrize(
    "name", ["", "a b", "AWS.a", "aws.", "amaZon.x", ".a", "a.", "a..b", "a\n", "a" * 256, "日", "\ud800"]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(SqsError) as caught:
        check_attributes({name: text("x")})
    assert caught.value.code == "InvalidParameterValue"


@pytest.mark.parametrize("value", ["0", "-1", "+1.5", ".5", "5.", "1e10", "-1.5E-3", "9" * 40])
def test_numbers(value: str) -> None:
    check_attributes({"a": text(value, "Number")})


@pytest.mark.parametrize(
    "attribute",
    [
        *(text(value, "Number") for value in ("x", "NaN", "Infinity", "0x1", "1_0", "1 ", "²", "1e", "")),
        *(text("x", kind) for kind in (None, "", "string", "Strings", "String.", "Text", "String.\ud800")),
        text("x", "String." + "a" * 249),
        *(text(value) for value in ("", None, "\x00", "\ud800", "\uffff")),
        {"DataType": "Binary", "StringValue": "x"},
        {"DataType": "Binary", "BinaryValue": "?"},
        {"DataType": "Binary", "BinaryValue": ""},
        {"DataType": "String", "StringListValues": ["x"]},
        {},
    ],
    ids=repr,
)
def test_bad_types_and_values(attribute: dict[str, Any]) -> None:
    with pytest.raises(SqsError) as caught:
        check_attributes({"a": attribute})
    assert caught.value.code == "InvalidParameterValue"


def test_ten_attributes() -> None:
    check_attributes({str(number): text("x") for number in range(10)})
    with pytest.raises(SqsError, match=r"Number of message attributes \[11\] exceeds the allowed maximum \[10\]."):
        check_attributes({str(number): text("x") for number in range(11)})


def test_system_attributes() -> None:
    check_system_attributes({"AWSTraceHeader": text("Root=1")})
    for name, attribute in (
        ("Else", text("x")),
        ("AWSTraceHeader", text("1", "Number")),
        ("AWSTraceHeader", text("\x00")),
    ):
        with pytest.raises(SqsError):
            check_system_attributes({name: attribute})


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.fixed_dictionaries(
            {},
            optional={
                "DataType": st.text(max_size=9) | st.just("Binary"),
                "StringValue": st.text(),
                "BinaryValue": st.text(),
            },
        ),
    ),
    st.text() | st.just("\ud800"),
)
def test_whatever_a_message_is_it_is_measured_and_checked(attributes: dict[str, Any], body: str) -> None:
    message = {"Id": "1", "MessageBody": body, "MessageAttributes": attributes}
    check_batch([message], "Entry")
    assert size_of_attributes(attributes) >= 0
    try:
        check_message(message, 1024, in_batch=True)
    except SqsError:
        return
    json.dumps(message, ensure_ascii=False).encode()


def test_binary_values_are_measured_as_bytes() -> None:
    value = base64.b64encode(b"12345").decode()
    assert size_of_attributes({"a": {"DataType": "Binary", "BinaryValue": value}}) == 1 + 6 + 5


def test_what_an_attribute_of_ours_may_carry() -> None:
    assert printable("a\x00\ud800ü\n") == "a??ü\n"
    assert printable("") == "-"


def test_an_entry_that_breaks_does_not_hide_those_before_it(caplog: pytest.LogCaptureFixture) -> None:
    def act(entry: dict[str, Any]) -> dict[str, Any]:
        if entry["Id"] == "2":
            raise UnicodeError("broken")
        return {"MessageId": entry["Id"]}

    answer = answer_each([{"Id": "1"}, {"Id": "2"}, {"Id": "3"}], act)
    assert [entry["Id"] for entry in answer["Successful"]] == ["1", "3"]
    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("2", "InternalError", False)
    assert "broken" in caplog.text


# -- queues --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text(max_size=90) | st.text("aZ9-_", max_size=90), st.booleans())
def test_names_of_queues(stem: str, fifo: bool) -> None:
    name = f"{stem}.fifo" if fifo else stem
    for kind in (True, False):
        own = name.removesuffix(".fifo") if kind else name
        plain = all(char.isascii() and (char.isalnum() or char in "-_") for char in own)
        if plain and own and len(name) <= 80 and kind == name.endswith(".fifo"):
            check_name(name, fifo=kind)
        else:
            with pytest.raises(SqsError):
                check_name(name, fifo=kind)


def test_attributes_of_queues() -> None:
    check_settable(["DelaySeconds", "Policy"], fifo=False)
    check_settable(["FifoQueue", "DeduplicationScope"], fifo=True)
    check_readable(["All", "QueueArn", "DelaySeconds"])
    for names, fifo in (
        (["QueueArn"], True),
        (["FifoQueue"], False),
        (["DeduplicationScope"], False),
        (["All"], False),
    ):
        with pytest.raises(SqsError) as caught:
            check_settable(names, fifo=fifo)
        assert caught.value.code == "InvalidAttributeName"
    with pytest.raises(SqsError, match="Unknown Attribute x"):
        check_readable(["All", "x"])


def test_pages() -> None:
    assert (page_limit(None), page_limit("7"), page_limit(1000)) == (None, 7, 1000)
    assert (page_start(None), page_start(""), page_start("7")) == (0, 0, 7)
    for limit in (0, 1001, -1, "x"):
        with pytest.raises(SqsError):
            page_limit(limit)
    for token in ("x", "-1", "²", "9" * 10):
        with pytest.raises(SqsError):
            page_start(token)
