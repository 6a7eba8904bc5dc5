"""Import of truncated or damaged files: the error names the file, and events before the damage are stored."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journey.test_cli_clients import cordwood, write_ndjson

STREAM = "postgres.logs"
EVENT_COUNT = 20_000
Damage = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def exported_files(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    place = tmp_path_factory.mktemp("exported")
    rng = random.Random(7)
    events = write_ndjson(
        place / "e.ndjson", *({"id": f"{n}", "event_message": f"{rng.getrandbits(256):x}"} for n in range(EVENT_COUNT))
    )
    folder = ("--stream", STREAM, "--data-dir", str(place / "data"))
    assert cordwood("import", str(events), *folder).returncode == 0
    assert cordwood("export", str(place / "e.parquet"), *folder).returncode == 0
    return (place / "e.parquet").read_bytes()


def damage_at(position: float) -> Damage:
    def apply_damage(data: bytes) -> bytes:
        place = int(len(data) * position)
        return data[:place] + bytes(byte ^ 0x5A for byte in data[place : place + 400]) + data[place + 400 :]

    return apply_damage


@pytest.mark.parametrize(
    ("apply_damage", "cause"),
    [
        (lambda data: data[:0], "is empty"),
        (lambda data: data[:4], "too small"),
        (lambda data: data[: len(data) // 2], "No magic bytes found at end"),
        (lambda data: data[:-200] + b"\0" * 192 + data[-8:], "cannot be read as Parquet"),
        (damage_at(0.05), "cannot be read as Parquet"),
        (damage_at(0.9), "cannot be read as Parquet"),
    ],
    ids=["empty", "its beginning", "half of it", "its index", "near its beginning", "near its end"],
)
def test_a_damaged_parquet_file_is_refused_with_its_name_and_a_remedy(
    exported_files: bytes, tmp_path: Path, apply_damage: Damage, cause: str
) -> None:
    file = tmp_path / "broken.parquet"
    file.write_bytes(apply_damage(exported_files))
    refused = cordwood("import", str(file), "--stream", STREAM, "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 1
    message = refused.stderr.strip()
    assert message.startswith(f"cordwood import: {file} ")
    assert "\n" not in message
    assert cause in message
    assert message.endswith("have it made again. What is stored of it is not stored twice.")


def test_events_before_the_damage_are_counted_and_not_stored_twice(tmp_path: Path) -> None:
    lines = "".join(f'{{"id": "{number}"}}\n' for number in range(EVENT_COUNT)).encode()
    packed, file = gzip.compress(lines), tmp_path / "e.ndjson.gz"
    folder = ("--stream", STREAM, "--data-dir", str(tmp_path / "data"))
    file.write_bytes(packed[:-20])
    cut = cordwood("import", str(file), *folder)
    assert (cut.returncode, "end-of-stream marker" in cut.stderr) == (1, True)
    stored = int(cut.stdout.partition(" events")[0].replace(",", ""))
    assert 0 < stored < EVENT_COUNT
    file.write_bytes(packed)
    result = cordwood("import", str(file), *folder)
    assert result.returncode == 0
    assert f"{EVENT_COUNT - stored:,} accepted, {stored:,} duplicates" in result.stdout
