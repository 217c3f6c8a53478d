"""What a party host signs with for other parties, and how long it believes what they sign."""

import datetime as dt

from tallyroom.protocols.identity.certificates import Credentials
from tallyroom.protocols.identity.vouchers import PartySigner


def signer_of(credentials: Credentials) -> PartySigner:
    """Checks at every use that others' certificates hold. Raises `LocalError`."""
    return credentials.signer(lambda: dt.datetime.now(dt.UTC))
