"""The wire: tally.proto, the code generated from it, and how a channel is opened.

gRPC speaks TLS 1.2 as well as 1.3, and has no option to say otherwise, but for one: which cipher
suites 1.2 may have. Those that need an RSA certificate are of no use here, where every key is on an
elliptic curve; so with them alone there is 1.3 or nothing. gRPC reads that when it is first
imported: packages that import it import this one before.
"""

import os
import sys

_SETTING = "GRPC_SSL_CIPHER_SUITES"
_OF_NO_USE = "ECDHE-RSA-AES128-GCM-SHA256"

TLS13_ONLY = "grpc" not in sys.modules or os.environ.get(_SETTING) == _OF_NO_USE
"""Whether it was set in time. A program of somebody else's may have imported gRPC before."""
os.environ[_SETTING] = _OF_NO_USE
