"""How a process that serves comes to its end."""

import os
import subprocess
import sys

STOPS_WITH_A_CALL_UNDER_WAY = """
import asyncio
import grpc, grpc.aio
from tallyroom.protos.channel import serving

async def forever(request, context):
    await context.send_initial_metadata(())
    await asyncio.sleep(3600)
    yield b""

async def main():
    server = grpc.aio.server()
    handlers = {"Listen": grpc.unary_stream_rpc_method_handler(forever)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Post", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    async with serving(server, grace=0):
        await channel.unary_stream("/Post/Listen")(b"").initial_metadata()

asyncio.run(main())
print("stopped")
"""


def test_a_process_that_stops_during_a_call_says_nothing() -> None:
    """A run that could not finish must say why in one line, and its processes nothing."""
    words = [sys.executable, "-c", STOPS_WITH_A_CALL_UNDER_WAY]
    quiet = os.environ | {"GRPC_VERBOSITY": "NONE"}  # as the command runs its processes
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=quiet)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
