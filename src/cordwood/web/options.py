"""What the operator may choose about HTTP, as plain values."""

import msgspec

MEBIBYTE = 1024 * 1024


class WebOptions(msgspec.Struct, frozen=True):
    """`logflare_errors` restores the incumbent's answers to failed queries: 200 with one sentence."""

    logflare_errors: bool = False
    body_bytes: int = 16 * MEBIBYTE
    inflated_bytes: int = 128 * MEBIBYTE
