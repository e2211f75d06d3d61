"""The wire format: protobuf on one side, the values of `themis.protocol` on the other.

raw = to_bytes(NodeReport("m0", boot=1, number=1, ...))
report = from_bytes(NodeReport, raw, Bounds(size=4 << 20))   # or RefusedError: field, value, limit

The only package that sees both. `scripts/protos` makes the generated modules.
"""

from themis.rpc.wire.columns import Bounds
from themis.rpc.wire.convert import from_bytes, from_message, parse, to_bytes, to_message

__all__ = ["Bounds", "from_bytes", "from_message", "parse", "to_bytes", "to_message"]
