"""Calls of one kind, one after the other on one stream.

    calls = CallStream(connection, EXCHANGES)
    answer = await calls.ask(message)

To make a call costs both ends four times as much as to send one more message on a stream, and a
round is a call of every agent. Nothing else is different: every message is answered, or ends the
stream with an error; a caller who gives up a call gives up the stream.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from themis.errors import RefusedError, UnavailableError
from themis.rpc.methods import NODE_BYTES, Rpc, error_of

if TYPE_CHECKING:
    from themis.rpc.client import Connection


class CallStream:
    """One stream at a time, opened when it is needed."""

    def __init__(self, connection: "Connection", rpc: Rpc) -> None:
        self._connection = connection
        self._rpc = rpc
        self._stream: Any = None
        self._shown: object = None
        """The credentials with which the stream was opened."""

    async def ask(self, message: bytes, seconds: float) -> bytes:
        """Send a message; returns with its answer.

        Raises:
            ThemisError: As the service said, or `UnavailableError`.
            RefusedError: The message is longer than any that is taken.
        """
        if len(message) > NODE_BYTES:
            # gRPC would end the stream and not say why, as often as it is tried again.
            raise RefusedError("message", f"{len(message)} bytes, allowed: at most {NODE_BYTES}")
        shown = self._connection.metadata()
        if self._stream is not None and (self._stream.done() or shown != self._shown):
            self.close()
        if self._stream is not None:
            answer = await self._pass(message, seconds)
            if answer is not None:
                return answer
        # There was no stream, or the service ended it in between and has read nothing more.
        self._shown = shown
        if await self._open(seconds):
            answer = await self._pass(message, seconds)
            if answer is not None:
                return answer
        raise UnavailableError("the service ended the stream")

    def close(self) -> None:
        """End the stream that is open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    def __del__(self) -> None:
        """End the stream; otherwise the service would find out only by the silence."""
        with suppress(RuntimeError):  # The loop is closed, and with it everything.
            self.close()

    async def _open(self, seconds: float) -> bool:
        """Open a stream, and wait until the service lets it in; whether it is open now.

        A message that is sent before that may get lost together with the reason for a refusal.
        """
        stream = self._stream = self._connection.stream(self._rpc)
        try:
            async with asyncio.timeout(seconds):
                await stream.initial_metadata()
                if not stream.done():
                    return True
                ending = await stream.code(), await stream.details()
                trailing = await stream.trailing_metadata()
        except TimeoutError:
            self.close()
            raise _late(seconds) from None
        except asyncio.CancelledError:
            self.close()
            raise
        self._stream = None
        self._end(*ending, trailing)
        return False

    async def _pass(self, message: bytes, seconds: float) -> bytes | None:
        """The answer; None if the stream has ended without one, and without an error."""
        import grpc  # noqa: PLC0415 - in an extra

        stream = self._stream
        try:
            async with asyncio.timeout(seconds):
                try:
                    await stream.write(message)
                except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                    return None  # It has ended; gRPC does not say why, and nothing was read.
                answer = await stream.read()
        except grpc.aio.AioRpcError as error:
            self._end(error.code(), error.details(), error.trailing_metadata())
            return None
        except TimeoutError:
            raise _late(seconds) from None
        finally:
            if stream.done():
                self._stream = None
        return None if answer is grpc.aio.EOF else bytes(answer)

    def _end(self, code: Any, details: str | None, trailing: Any) -> None:
        """A stream has ended.

        Raises:
            ThemisError: With this error.
        """
        if code.name != "OK":
            error = error_of(code.name, details or "", trailing)
            self._connection.note(error)
            raise error


def _late(seconds: float) -> UnavailableError:
    return UnavailableError(f"deadline exceeded: no answer within {seconds:g} s")
