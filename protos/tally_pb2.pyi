from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnrolRequest(_message.Message):
    __slots__ = ("token", "request")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    token: str
    request: bytes
    def __init__(self, token: _Optional[str] = ..., request: _Optional[bytes] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("request", "certificate", "signature")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, request: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Certified(_message.Message):
    __slots__ = ("certificate", "authority", "party_authority")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    PARTY_AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authority: bytes
    party_authority: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., authority: _Optional[bytes] = ..., party_authority: _Optional[bytes] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("servers", "parties", "present", "most_records", "records", "durable")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    MOST_RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    servers: int
    parties: int
    present: int
    most_records: int
    records: int
    durable: bool
    def __init__(self, servers: _Optional[int] = ..., parties: _Optional[int] = ..., present: _Optional[int] = ..., most_records: _Optional[int] = ..., records: _Optional[int] = ..., durable: _Optional[bool] = ...) -> None: ...

class RevocationList(_message.Message):
    __slots__ = ("list",)
    LIST_FIELD_NUMBER: _ClassVar[int]
    list: bytes
    def __init__(self, list: _Optional[bytes] = ...) -> None: ...

class RevocationState(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Parcel(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    def __init__(self, message: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("sender", "reason")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sender: str
    reason: str
    def __init__(self, sender: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("servers", "receipt", "run")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    servers: _containers.RepeatedScalarFieldContainer[str]
    receipt: SignedShare
    run: bytes
    def __init__(self, servers: _Optional[_Iterable[str]] = ..., receipt: _Optional[_Union[SignedShare, _Mapping]] = ..., run: _Optional[bytes] = ...) -> None: ...

class RunRef(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: bytes
    def __init__(self, run: _Optional[bytes] = ...) -> None: ...

class RunList(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, runs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RunStatus(_message.Message):
    __slots__ = ("submissions", "bytes", "links", "submitted")
    SUBMISSIONS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    submissions: int
    bytes: int
    links: _containers.RepeatedCompositeFieldContainer[LinkTally]
    submitted: bytes
    def __init__(self, submissions: _Optional[int] = ..., bytes: _Optional[int] = ..., links: _Optional[_Iterable[_Union[LinkTally, _Mapping]]] = ..., submitted: _Optional[bytes] = ...) -> None: ...

class LinkTally(_message.Message):
    __slots__ = ("link", "bytes", "messages")
    LINK_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    link: str
    bytes: int
    messages: int
    def __init__(self, link: _Optional[str] = ..., bytes: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class AccountEntry(_message.Message):
    __slots__ = ("direction", "phase", "round", "sender_role", "receiver_role", "station", "bytes_by_party", "messages_by_party", "wire_bytes")
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SENDER_ROLE_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_ROLE_FIELD_NUMBER: _ClassVar[int]
    STATION_FIELD_NUMBER: _ClassVar[int]
    BYTES_BY_PARTY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_BY_PARTY_FIELD_NUMBER: _ClassVar[int]
    WIRE_BYTES_FIELD_NUMBER: _ClassVar[int]
    direction: int
    phase: int
    round: int
    sender_role: int
    receiver_role: int
    station: int
    bytes_by_party: bytes
    messages_by_party: bytes
    wire_bytes: int
    def __init__(self, direction: _Optional[int] = ..., phase: _Optional[int] = ..., round: _Optional[int] = ..., sender_role: _Optional[int] = ..., receiver_role: _Optional[int] = ..., station: _Optional[int] = ..., bytes_by_party: _Optional[bytes] = ..., messages_by_party: _Optional[bytes] = ..., wire_bytes: _Optional[int] = ...) -> None: ...

class AccountList(_message.Message):
    __slots__ = ("accounts", "cpu_seconds", "prepare_cpu_seconds", "waiting_seconds")
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREPARE_CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    accounts: _containers.RepeatedCompositeFieldContainer[AccountEntry]
    cpu_seconds: float
    prepare_cpu_seconds: float
    waiting_seconds: float
    def __init__(self, accounts: _Optional[_Iterable[_Union[AccountEntry, _Mapping]]] = ..., cpu_seconds: _Optional[float] = ..., prepare_cpu_seconds: _Optional[float] = ..., waiting_seconds: _Optional[float] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("parties", "records", "version")
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    parties: bytes
    records: bytes
    version: bytes
    def __init__(self, parties: _Optional[bytes] = ..., records: _Optional[bytes] = ..., version: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("servers", "parties")
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    servers: _containers.RepeatedScalarFieldContainer[str]
    parties: int
    def __init__(self, servers: _Optional[_Iterable[str]] = ..., parties: _Optional[int] = ...) -> None: ...

class Announcement(_message.Message):
    __slots__ = ("address", "key", "signature")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    address: str
    key: bytes
    signature: bytes
    def __init__(self, address: _Optional[str] = ..., key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Parties(_message.Message):
    __slots__ = ("parties",)
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    parties: bytes
    def __init__(self, parties: _Optional[bytes] = ...) -> None: ...

class Host(_message.Message):
    __slots__ = ("first", "last", "address", "key", "signature", "certificate")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    address: str
    key: bytes
    signature: bytes
    certificate: bytes
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., address: _Optional[str] = ..., key: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class Hosts(_message.Message):
    __slots__ = ("hosts",)
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedCompositeFieldContainer[Host]
    def __init__(self, hosts: _Optional[_Iterable[_Union[Host, _Mapping]]] = ...) -> None: ...

class AccountReport(_message.Message):
    __slots__ = ("run", "accounts", "relayed")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    RELAYED_FIELD_NUMBER: _ClassVar[int]
    run: bytes
    accounts: AccountList
    relayed: bool
    def __init__(self, run: _Optional[bytes] = ..., accounts: _Optional[_Union[AccountList, _Mapping]] = ..., relayed: _Optional[bool] = ...) -> None: ...

class Hindrance(_message.Message):
    __slots__ = ("run", "reason")
    RUN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run: bytes
    reason: str
    def __init__(self, run: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("first", "last", "key", "sealed")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    key: bytes
    sealed: bytes
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., key: _Optional[bytes] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class QuestionKey(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class Cancelled(_message.Message):
    __slots__ = ("cancelled", "words")
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    words: str
    def __init__(self, cancelled: _Optional[bool] = ..., words: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("enrolled", "parties", "phase", "submissions", "bytes", "links", "states")
    ENROLLED_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SUBMISSIONS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    enrolled: int
    parties: int
    phase: str
    submissions: int
    bytes: int
    links: _containers.RepeatedCompositeFieldContainer[LinkTally]
    states: bytes
    def __init__(self, enrolled: _Optional[int] = ..., parties: _Optional[int] = ..., phase: _Optional[str] = ..., submissions: _Optional[int] = ..., bytes: _Optional[int] = ..., links: _Optional[_Iterable[_Union[LinkTally, _Mapping]]] = ..., states: _Optional[bytes] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("records", "total", "contributors", "stations", "submit_seconds", "release_seconds", "parties", "caught", "refused", "run", "query", "cells", "authority", "reused", "lost_pairs", "question", "refusals", "refusing", "waiting_seconds")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    STATIONS_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    REUSED_FIELD_NUMBER: _ClassVar[int]
    LOST_PAIRS_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    REFUSING_FIELD_NUMBER: _ClassVar[int]
    WAITING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    records: int
    total: bytes
    contributors: bytes
    stations: _containers.RepeatedCompositeFieldContainer[AccountList]
    submit_seconds: float
    release_seconds: float
    parties: int
    caught: _containers.RepeatedCompositeFieldContainer[Caught]
    refused: int
    run: bytes
    query: bytes
    cells: bytes
    authority: bytes
    reused: bool
    lost_pairs: int
    question: str
    refusals: _containers.RepeatedCompositeFieldContainer[PartyRefusal]
    refusing: int
    waiting_seconds: float
    def __init__(self, records: _Optional[int] = ..., total: _Optional[bytes] = ..., contributors: _Optional[bytes] = ..., stations: _Optional[_Iterable[_Union[AccountList, _Mapping]]] = ..., submit_seconds: _Optional[float] = ..., release_seconds: _Optional[float] = ..., parties: _Optional[int] = ..., caught: _Optional[_Iterable[_Union[Caught, _Mapping]]] = ..., refused: _Optional[int] = ..., run: _Optional[bytes] = ..., query: _Optional[bytes] = ..., cells: _Optional[bytes] = ..., authority: _Optional[bytes] = ..., reused: _Optional[bool] = ..., lost_pairs: _Optional[int] = ..., question: _Optional[str] = ..., refusals: _Optional[_Iterable[_Union[PartyRefusal, _Mapping]]] = ..., refusing: _Optional[int] = ..., waiting_seconds: _Optional[float] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("run", "data", "question", "query", "events", "analyst")
    RUN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ANALYST_FIELD_NUMBER: _ClassVar[int]
    run: bytes
    data: bytes
    question: str
    query: bytes
    events: _containers.RepeatedCompositeFieldContainer[Event]
    analyst: str
    def __init__(self, run: _Optional[bytes] = ..., data: _Optional[bytes] = ..., question: _Optional[str] = ..., query: _Optional[bytes] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., analyst: _Optional[str] = ...) -> None: ...

class SignedShare(_message.Message):
    __slots__ = ("server", "share", "receipt", "certificate", "ask")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    server: int
    share: bytes
    receipt: bytes
    certificate: bytes
    ask: bytes
    def __init__(self, server: _Optional[int] = ..., share: _Optional[bytes] = ..., receipt: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., ask: _Optional[bytes] = ...) -> None: ...

class PartyRefusal(_message.Message):
    __slots__ = ("party", "reason")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    party: int
    reason: str
    def __init__(self, party: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Caught(_message.Message):
    __slots__ = ("party", "reason")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    party: int
    reason: str
    def __init__(self, party: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("reason", "our_input")
    REASON_FIELD_NUMBER: _ClassVar[int]
    OUR_INPUT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    our_input: bool
    def __init__(self, reason: _Optional[str] = ..., our_input: _Optional[bool] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("progress", "answer", "failure", "share")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    answer: Answer
    failure: Failure
    share: SignedShare
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., share: _Optional[_Union[SignedShare, _Mapping]] = ...) -> None: ...
