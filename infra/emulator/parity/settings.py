"""Teaching settings: AWS limits turned down on one resource, by tags that AWS itself ignores.

Some of AWS's limits cannot be met in a classroom: 120,000 messages in flight, retries over 24 hours. A tag on the
resource turns such a limit down for that resource alone, so that two notebooks on one stand-in do not disturb each
other, and so that the same code runs on AWS, where the tag is an ordinary tag without effect.

===========================  ============  =====================================================================
tag                          on            effect
===========================  ============  =====================================================================
``lab:in-flight-cap``        queue         messages in flight before OverLimit (AWS: 120,000)
``lab:clock-scale``          event bus,    how many times faster than real time the delivery clock runs: waits
                             or its rule   between retries and the event's age (AWS: 1). The rule's tag wins
``lab:clock-scale``          function      the same for its asynchronous events: the minutes between retries,
                                           and the age at which an event is given up
``lab:replay-rate``          event bus     events a second that a replay on it sends; without it, as fast as it can
``lab:fault``                queue         deliveries from EventBridge to it, as a target or as a dead-letter
                                           queue, fail with this error code (``THROTTLING``, ``TIMEOUT``, …)
                                           until the tag is removed
===========================  ============  =====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

IN_FLIGHT_CAP = "lab:in-flight-cap"
CLOCK_SCALE = "lab:clock-scale"
FAULT = "lab:fault"
REPLAY_RATE = "lab:replay-rate"


# Outside of these, a setting is taken for a slip: a clock that stands still, or one that no timer can follow.
SLOWEST, FASTEST = 1e-3, 1e9


def positive_int(tags: Mapping[str, str], key: str, default: int) -> int:
    """The tag as a whole number from 1 to 999,999,999, or ``default`` when it is absent or not such a number."""
    value = str(tags.get(key, ""))
    good = value.isascii() and value.isdigit() and len(value) <= 9 and int(value) >= 1
    return int(value) if good else default


def positive_float(tags: Mapping[str, str], key: str, default: float) -> float:
    """The tag as a number from :data:`SLOWEST` to :data:`FASTEST`, or ``default`` when it is absent or none such."""
    try:
        value = float(tags.get(key, ""))
    except (TypeError, ValueError):
        return default
    return value if SLOWEST <= value <= FASTEST else default
