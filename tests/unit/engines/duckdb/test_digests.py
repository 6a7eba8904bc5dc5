"""In DuckDB's SQL, FARM_FINGERPRINT and SHA512 of columns equal the reference for texts of every length."""

import hashlib
from collections.abc import Callable
from random import Random

import duckdb
import pytest

from cordwood.engines.duckdb.rules.digests import (
    FARM_FINGERPRINT_SQL,
    MAX_FINGERPRINT_BYTES,
    MAX_SHA512_BYTES,
    SHA512_SQL,
    farm_fingerprint,
)


def sha512_of(data: bytes) -> bytes:
    return hashlib.sha512(data).digest()


@pytest.mark.parametrize(
    ("template", "max_bytes", "reference"),
    [
        (FARM_FINGERPRINT_SQL, MAX_FINGERPRINT_BYTES, farm_fingerprint),
        (SHA512_SQL, MAX_SHA512_BYTES, sha512_of),
    ],
    ids=["FARM_FINGERPRINT", "SHA512"],
)
def test_digests_of_every_length_equal_the_reference(
    template: str, max_bytes: int, reference: Callable[[bytes], object]
) -> None:
    random = Random(7)
    values = [random.randbytes(length) for length in range(max_bytes + 1)]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE inputs (x BLOB)")
        connection.executemany("INSERT INTO inputs VALUES (?)", [(value,) for value in [*values, None]])
        result_rows = dict(connection.execute(f"SELECT x, {template.replace('@a', 'x')} FROM inputs").fetchall())
    assert result_rows.pop(None) is None
    assert result_rows == {value: reference(value) for value in values}
