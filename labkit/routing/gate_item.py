"""The item of a gate: what stands in it, and the conditional writes that change it.

One item holds all that is counted, so that one condition can look at all of it::

    pk        the gate's name
    cap       how many permits may be out
    permits   {id: end of its lease}          size(permits) < cap lets one more in
    waiting   {id: number of its place}       the smallest number is first
    alive     {id: until when the place holds}
    fence     grows with every grant and every place

**Every write may come twice**: the SDK makes a call again whose answer was lost. So whoever writes names itself. The
second call sets the same entry again, or is refused and finds itself among the permits: no second permit in either
case, and a fence that nobody else has got. A copy that is late by more than its sender waits can put a permit or a
place in that nobody knows of; it ends with the lease that the call asked for, and until then the gate lets in one less,
never one more.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from labkit.facts import facts
from labkit.routing.gate_state import State
from labkit.routing.permits import GateError

_REFUSED = str(facts("dynamodb.condition.error"))
_RETURN_OLD = str(facts("dynamodb.condition.return_old"))
_IN = "attribute_exists(permits.#me)"  # the call was heard before
_FREE = "size(permits) < cap AND size(waiting) < :one"  # and nobody waits
_SWEPT = 50  # dead entries that one write removes: AWS ends an expression at 4 KB and 300 operators


def new_id() -> str:
    """A name for one who wants in: 64 random bits, in few characters because all of them are in every write."""
    return secrets.token_urlsafe(8)


class Item:
    """The item ``name`` of a table with the key ``pk``. An error of the client comes through as it is."""

    def __init__(self, client: Any, table: str, name: str) -> None:
        self.client, self.table, self.name = client, table, name

    def make(self, cap: int) -> State:
        """The gate with this cap: a new one, or the one that stands, with everything that is in it."""
        update = ", ".join(f"{each} = if_not_exists({each}, :none)" for each in ("permits", "waiting", "alive"))
        made = self.client.update_item(
            TableName=self.table,
            Key={"pk": {"S": self.name}},
            UpdateExpression=f"SET cap = :cap, fence = if_not_exists(fence, :zero), {update}",
            ExpressionAttributeValues={":cap": {"N": str(cap)}, ":zero": {"N": "0"}, ":none": {"M": {}}},
            ReturnValues="ALL_NEW",
        )
        return State.of(made["Attributes"])

    def look(self) -> State:
        """The gate now. Reading it is far cheaper than a write that is refused, which costs what a write does."""
        found = self.client.get_item(TableName=self.table, Key={"pk": {"S": self.name}}, ConsistentRead=True)
        return self._state(found.get("Item"))

    def resize(self, cap: int) -> None:
        self._write("SET cap = :cap", "attribute_exists(pk)", {}, {":cap": {"N": str(cap)}})

    # -- what one who wants in writes: `me` -------------------------------------------------------------------------

    def enter(self, me: str, until: float) -> int | State:
        """A permit where one is free and nobody waits: its fence, or the state. The ordinary case, in one write."""
        values = {":until": moment(until), ":one": {"N": "1"}}
        return self._granted("SET permits.#me = :until ADD fence :one", _FREE, {"#me": me}, values)

    def adopt(self, me: str, until: float) -> int | State:
        """The permit that a call of mine has got whose answer was lost: its fence, or the state if it is gone."""
        values = {":until": moment(until), ":one": {"N": "1"}}
        update = "SET permits.#me = :until REMOVE waiting.#me, alive.#me ADD fence :one"
        return self._granted(update, _IN, {"#me": me}, values)

    def take(self, me: str, until: float, seen: State, before: float) -> int | State:
        """The permit that ``seen`` says is mine: what is dead goes in the same write. Its fence, or the state now.

        The condition: nobody has come in since then, nobody's lease was renewed meanwhile, and the cap is not lower.
        "Or I am in already" is no part of it: what is dead must be looked at in each case.
        """
        permits, places = seen.dead(before)
        gone = _Sweep(me)
        gone.of("permits", sorted(permits.items(), key=lambda entry: float(entry[1])))
        if seen.taken - gone.count >= seen.cap:  # a cap was lowered, and many have died: not all go in one write
            update, holds = f"REMOVE {gone.paths.removesuffix(', ')}", gone.holds.removesuffix(" AND ")
            return State.of(self._write(update, holds, gone.names, gone.values, "ALL_NEW")[1])
        gone.of("alive", places.items(), also="waiting")
        holds = f"{gone.holds}cap >= :cap AND size(permits) <= :seen"
        values = {":cap": {"N": str(seen.cap)}, ":seen": {"N": str(seen.taken)}}
        if me in seen.waiting:
            holds += " AND attribute_exists(waiting.#me)"
        else:  # whoever has got a place meanwhile was first
            holds += " AND size(waiting) <= :waiting"
            values[":waiting"] = {"N": str(len(seen.waiting))}
        return self._granted(
            f"SET permits.#me = :until REMOVE {gone.paths}waiting.#me, alive.#me ADD fence :one",
            holds,
            {"#me": me, **gone.names},
            {":until": moment(until), ":one": {"N": "1"}, **values, **gone.values},
        )

    def queue(self, me: str, until: float, most: int, seen: State, before: float) -> State:
        """A place at the end, where no more than ``most`` wait then; the state says whether I have got one."""
        gone = _Sweep(me)
        gone.of("alive", seen.dead(before)[1].items(), also="waiting")
        remove = f" REMOVE {gone.paths.removesuffix(', ')}" if gone.count else ""
        room = {":most": {"N": str(most + gone.count)}}
        return State.of(
            self._write(
                f"SET waiting.#me = if_not_exists(waiting.#me, fence), alive.#me = :until{remove} ADD fence :one",
                f"{gone.holds}attribute_not_exists(permits.#me) AND size(waiting) < :most",
                {"#me": me, **gone.names},
                {":until": moment(until), ":one": {"N": "1"}, **room, **gone.values},
                "ALL_NEW",
            )[1]
        )

    def stay(self, me: str, until: float) -> State:
        """Keep the place; where it is gone, the state says so."""
        holds, values = "attribute_exists(waiting.#me)", {":until": moment(until)}
        return State.of(self._write("SET alive.#me = :until", holds, {"#me": me}, values, "ALL_NEW")[1])

    def renew(self, me: str, until: float) -> float | None:
        """Until when the lease holds now; None when the permit is not there. A lease never gets shorter: the copy of
        an older call, or a clock that was set back, must not end it for others while its holder counts on it."""
        values = {":until": moment(until)}
        done, found = self._write("SET permits.#me = :until", "permits.#me <= :until", {"#me": me}, values)
        end = None if done else State.of(found).permits.get(me)
        return until if done else None if end is None else float(end)

    def release(self, me: str) -> bool:
        """Whether the permit was there to be given back."""
        return self._write("REMOVE permits.#me", _IN, {"#me": me})[0]

    def leave(self, me: str) -> None:
        """Take away whatever this one has: its place, or a permit that it never heard of."""
        self._write("REMOVE permits.#me, waiting.#me, alive.#me", "attribute_exists(pk)", {"#me": me})

    # ---------------------------------------------------------------------------------------------------------------

    def _granted(self, update: str, holds: str, names: dict[str, str], values: dict[str, Any]) -> int | State:
        done, found = self._write(update, holds, names, values, "UPDATED_NEW")
        return int(found["fence"]["N"]) if done else State.of(found)

    def _write(
        self,
        update: str,
        holds: str,
        names: dict[str, str],
        values: dict[str, Any] | None = None,
        returns: str = "",
    ) -> tuple[bool, Mapping[str, Any]]:
        """One conditional write: True and the attributes asked for, or False and the whole item that refused it."""
        from botocore.exceptions import ClientError

        more = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values, "ReturnValues": returns}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key={"pk": {"S": self.name}},
                UpdateExpression=update,
                ConditionExpression=holds,
                # What is in the way comes with the refusal: no second read, which could see another state.
                ReturnValuesOnConditionCheckFailure=_RETURN_OLD,
                **{key: value for key, value in more.items() if value},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != _REFUSED:
                raise
            found = error.response.get("Item")
            self._state(found)
            return False, found
        return True, answer.get("Attributes", {})

    def _state(self, item: Mapping[str, Any] | None) -> State:
        if not item:
            raise GateError(f"there is no gate {self.name} in table {self.table}; Gate.create makes it.")
        return State.of(item)


class _Sweep:
    """Dead entries on their way out: each only if it still is as it was seen."""

    def __init__(self, me: str) -> None:
        self.me, self.count, self.paths, self.holds = me, 0, "", ""
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def of(self, kind: str, entries: Iterable[tuple[str, str]], also: str = "") -> None:
        for id, end in entries:
            if id == self.me or self.count == _SWEPT:
                continue
            n, self.count = self.count, self.count + 1
            self.names[f"#d{n}"], self.values[f":d{n}"] = id, {"N": end}
            self.holds += f"{kind}.#d{n} = :d{n} AND "
            self.paths += f"{kind}.#d{n}, " + (f"{also}.#d{n}, " if also else "")


def moment(seconds: float) -> dict[str, str]:
    """Epoch seconds as an attribute, to the millisecond."""
    return {"N": f"{seconds:.3f}"}
