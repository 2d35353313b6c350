"""Five brokers, each after its vendor's documentation: the same calls, the same clock, other consequences."""

from labkit.models.clouds.broker import Broker
from labkit.models.clouds.eventbridge import EventBridge
from labkit.models.clouds.eventgrid import EventGrid
from labkit.models.clouds.pubsub import PubSub
from labkit.models.clouds.report import Report, Script
from labkit.models.clouds.scenario import COLUMNS, VARIANTS, play
from labkit.models.clouds.servicebus import ServiceBus
from labkit.models.clouds.sqs import Sqs
from labkit.models.clouds.vocabulary import Answer, Clock, Delivery, Event

__all__ = [
    "COLUMNS", "VARIANTS", "Answer", "Broker", "Clock", "Delivery", "Event", "EventBridge", "EventGrid", "PubSub",
    "Report", "Script", "ServiceBus", "Sqs", "play",
]  # fmt: skip
