"""Local randomizers: what a party may say aloud, with its privacy map and unbiased estimators."""

from protocols.local.bounded import BoundedResponse
from protocols.local.contract import LocalRandomizer
from protocols.local.response import RandomizedResponse

__all__ = ["BoundedResponse", "LocalRandomizer", "RandomizedResponse"]
