"""Calls of one kind, one after the other on one stream.

    talk = Talk(connection, EXCHANGES, EXCHANGE)
    answer = await talk.ask(message)

To make a call costs both ends four times as much as to send one more message on a stream, and a
round is a call of every agent. Nothing else is different: every message is answered, or ends the
stream with an error; who gives one up gives up the stream.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from themis.errors import RefusedError, UnavailableError
from themis.rpc.methods import NODE_BYTES, Rpc, error_of

if TYPE_CHECKING:
    from themis.rpc.client import Connection

_UNKNOWN = "UNIMPLEMENTED"
"""What a service says that is older than this stream."""


class CallStream:
    """One stream at a time, opened when it is needed."""

    def __init__(self, connection: "Connection", rpc: Rpc, instead: Rpc) -> None:
        """Begin with nothing open.

        Args:
            connection: The way to the service.
            rpc: The stream.
            instead: The call that is made of a service that has no such stream.
        """
        self._connection = connection
        self._rpc = rpc
        self._instead = instead
        self._stream: Any = None
        self._shown: object = None
        """What the caller showed when the stream was opened."""
        self._by_call = False

    async def ask(self, message: bytes, seconds: float) -> bytes:
        """Send a message; returns with its answer.

        Raises:
            ThemisError: As the service said, or `UnavailableError`.
            RefusedError: It is longer than any that is taken.
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
        # There was none, or the service has ended it in between and has read nothing more.
        if not self._by_call:
            self._shown = shown
            if await self._open(seconds):
                answer = await self._pass(message, seconds)
                if answer is not None:
                    return answer
        if not self._by_call:
            raise UnavailableError("the service ended the talk")
        try:
            return await self._connection.call(self._instead, message, seconds)
        except UnavailableError:
            self._by_call = False  # Whoever answers next may be a later version.
            raise

    def close(self) -> None:
        """End the stream that is open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    def __del__(self) -> None:
        """Nobody will ask anything more; otherwise the service would find out by the silence."""
        with suppress(RuntimeError):  # The loop is closed, and with it everything.
            self.close()

    async def _open(self, seconds: float) -> bool:
        """Open a stream, and wait until one is let in; whether there is one now.

        What is said before that may get lost together with the reason why one is not.
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
        import grpc  # noqa: PLC0415 - slow to import

        stream = self._stream
        try:
            async with asyncio.timeout(seconds):
                try:
                    await stream.write(message)
                except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                    return None  # It has ended; gRPC does not say why, and nobody has heard this.
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
        if code.name == _UNKNOWN:
            self._by_call = True
        elif code.name != "OK":
            told = error_of(code.name, details or "", trailing)
            self._connection.note(told)
            raise told


def _late(seconds: float) -> UnavailableError:
    return UnavailableError(f"deadline exceeded: no answer within {seconds:g} s")
