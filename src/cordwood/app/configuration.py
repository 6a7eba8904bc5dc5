"""Convert the settings into the values that other packages take: limits, HTTP options, keys and redaction rules.

Signed keys are verified with a JWT library. This library is optional, so it is imported only if signed keys are
configured.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from cordwood.access import FixedKey, SignedKeyVerifier
from cordwood.app.checks import uses_clickhouse
from cordwood.catalog.key_store import hash_secret
from cordwood.catalog.sqlite_keys import SQLiteKeyStore
from cordwood.engines.engine import Engine
from cordwood.errors import BadSetting
from cordwood.folder import DataFolder
from cordwood.ingest.accept import IntakeLimits
from cordwood.ingest.parsed_body import MAX_BODY_ITEMS
from cordwood.ingest.stream_mapping import read_stream_mapping
from cordwood.model.key import Caller, KeyTerms
from cordwood.model.redaction import Detector, NamedPattern, RedactionRules
from cordwood.serve.admission import ServeLimits
from cordwood.serve.tails import TailLimits
from cordwood.settings.settings import KeySettings, LimitSettings, Settings
from cordwood.web.request_body import BodyBounds
from cordwood.web.services import WebhookSecrets, WebOptions, new_query_body_budget

# The estimated memory of the serving process apart from its cache: the interpreter, bodies that are being decoded, and
# events that are not flushed yet.
_PROCESS_OVERHEAD_BYTES = 250 * 10**6
_MIN_ENGINE_MEMORY_BYTES = 96 * 10**6
_MAX_DEFAULT_CONNECTIONS = 10_000
_MEMORY_BYTES_PER_CONNECTION = 64 * 1024
# The maximum number of events in a body is the memory ceiling divided by this number of bytes. The smallest event takes
# about 1 KB after decoding. So a body with the maximum number of such events takes a quarter of the ceiling.
_MEMORY_BYTES_PER_BODY_EVENT = 4096
_MAX_COMPILE_CACHE_BYTES = 16 * 2**20
_MIN_TAIL_BUFFERS_BYTES = 8 * 2**20


def web_options(settings: Settings) -> WebOptions:
    return WebOptions(
        sends_logflare_errors=settings.compat.errors == "logflare",
        event_body_bounds=BodyBounds(
            settings.ingest.body_size, min(settings.ingest.inflated_size, settings.limits.memory_ceiling // 2)
        ),
        max_unsent_bytes=settings.limits.memory_ceiling // 8,
        webhook_secrets=WebhookSecrets(
            settings.ingest.vercel_secret, settings.ingest.vercel_verify, settings.ingest.github_secret
        ),
        query_body_budget=new_query_body_budget(settings.limits.memory_ceiling // 16),
        stream_mapping=read_stream_mapping(settings.ingest.stream_map, settings.ingest.default_stream),
    )


def connection_limit(settings: Settings) -> int:
    """Return the maximum number of open connections: as configured, or by default as many as fit into memory.

    A connection takes about 30 KB, and twice as much while a request is parsed.
    """
    return settings.web.connections or min(
        _MAX_DEFAULT_CONNECTIONS, settings.limits.memory_ceiling // _MEMORY_BYTES_PER_CONNECTION
    )


def duckdb_memory_bytes(settings: Settings) -> int:
    """Return DuckDB's memory limit: the configured one, or the part of the memory ceiling that nothing else uses."""
    remaining = settings.limits.memory_ceiling - _PROCESS_OVERHEAD_BYTES - settings.serve.cache_memory
    return settings.duckdb.memory or max(_MIN_ENGINE_MEMORY_BYTES, remaining)


def intake_limits(settings: Settings) -> IntakeLimits:
    """Return the limits of ingestion, some of which follow from the memory ceiling.

    A body takes about three times its size in memory while it is decoded.
    """
    ingest = settings.ingest
    ceiling = settings.limits.memory_ceiling
    queue_bytes, items = (
        min(ingest.queue_size, ceiling // 24),
        min(MAX_BODY_ITEMS, ceiling // _MEMORY_BYTES_PER_BODY_EVENT),
    )
    large_bytes = None if uses_clickhouse(settings) else duckdb_memory_bytes(settings) // 4
    return IntakeLimits(ingest.event_size, ingest.stream_rate, queue_bytes, items, large_bytes)


def serve_limits(limits: LimitSettings) -> ServeLimits:
    return ServeLimits(
        query_seconds=limits.query_time,
        answer_bytes=limits.answer_size,
        concurrent_queries=limits.concurrent_queries,
        queued_queries=limits.queued_queries,
        queue_seconds=limits.queue_time,
        key_requests_per_second=limits.key_rate,
        key_concurrent_queries=limits.key_concurrent_queries,
        compile_cache_bytes=compile_cache_bytes(limits),
    )


def tail_limits(settings: Settings) -> TailLimits:
    """Return the maximum numbers of followers (in total, and with one key) and the maximum memory for their rows.

    A follower is a client that receives the new rows of a query as they arrive. By default, followers may use half of
    the connections.
    """
    limits = settings.limits
    followers = limits.followers or connection_limit(settings) // 2
    return TailLimits(followers, limits.key_followers, max(_MIN_TAIL_BUFFERS_BYTES, limits.memory_ceiling // 32))


def compile_cache_bytes(limits: LimitSettings) -> int:
    """Return the maximum size of a cache of compiled queries. There are three such caches."""
    return min(_MAX_COMPILE_CACHE_BYTES, limits.memory_ceiling // 32)


class CreatedKeys(msgspec.Struct, frozen=True):
    """The secrets of the keys that were created at the first start. The key store has only their digests."""

    private_key_secret: str
    public_key_secret: str


def fixed_keys(settings: KeySettings) -> tuple[FixedKey, ...]:
    """Return the keys in the settings, each of which is given as a secret or as the name of a file with the secret."""
    return tuple(_fixed_keys_of_scope("private", settings.private, settings.private_file)) + tuple(
        _fixed_keys_of_scope("public", settings.public, settings.public_file)
    )


def create_first_keys(keys: SQLiteKeyStore) -> CreatedKeys | None:
    """Create a private and a public key if the store never had a key; otherwise return None."""
    if not keys.has_never_had_keys():
        return None
    return CreatedKeys(
        *(
            keys.create(KeyTerms(frozenset({scope}), note="made at first start")).secret
            for scope in ("private", "public")
        )
    )


def create_fixed_key(scope: str, secret: str, origin: str = "settings") -> FixedKey:
    return FixedKey(Caller(f"{origin}:{scope}", frozenset({scope})), hash_secret(secret))


def _fixed_keys_of_scope(scope: str, secret: str, file: str) -> Iterator[FixedKey]:
    if secret and file:
        raise BadSetting(f"keys.{scope} and keys.{scope}_file are both given.", hint="Give one of them.")
    if file:
        secret = _read_key_file(scope, Path(file))
    if secret:
        yield create_fixed_key(scope, secret)


def _read_key_file(scope: str, file: Path) -> str:
    try:
        line = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSetting(f"keys.{scope}_file: {file} cannot be read: {problem}.") from problem
    if not line:
        raise BadSetting(f"keys.{scope}_file: the first line of {file} is empty.")
    return line


def create_signed_key_verifier(settings: KeySettings) -> SignedKeyVerifier | None:
    """Return the verifier of signed keys, or None if the settings have neither a JWT secret nor a JWKS file."""
    if not (settings.jwt_secret or settings.jwt_jwks_file):
        return None
    try:
        module = importlib.import_module("cordwood.catalog.signed_keys")
    except ModuleNotFoundError as problem:
        raise BadSetting(
            f"Signed keys need the package {problem.name}, which is not installed.",
            hint="Install the extra: pip install 'cordwood[jwt]'",
        ) from problem
    jwks_file = Path(settings.jwt_jwks_file) if settings.jwt_jwks_file else None
    keys = module.JWTVerifier(secret=settings.jwt_secret, jwks_file=jwks_file, audience=settings.jwt_audience)
    return cast(SignedKeyVerifier, keys)


_REDACTION_KEY_FILE = "redaction.key"


def redaction_rules(settings: Settings) -> RedactionRules:
    """Return the redaction rules; raise BadSetting for an unknown detector or a pattern without a name."""
    detectors = tuple(_parse_detector(name.strip()) for name in settings.redaction.detectors.split(",") if name.strip())
    lines = (line.strip() for line in settings.redaction.patterns.splitlines())
    return RedactionRules(detectors, tuple(_parse_named_pattern(line) for line in lines if line))


def checked_redaction_rules(settings: Settings, engine: Engine) -> RedactionRules:
    """Return the redaction rules; raise BadSetting for a pattern that the engine rejects or that matches empty text."""
    rules = redaction_rules(settings)
    for named in rules.patterns:
        problem = engine.regex_error(named.pattern)
        if problem is not None or _matches_empty_text(named.pattern):
            raise BadSetting(
                f"redaction.patterns: {named.name}: {problem or 'it matches even an empty text'}.",
                hint="Patterns are regular expressions as RE2 reads them.",
            )
    return rules


def _matches_empty_text(pattern: str) -> bool:
    try:
        return re.search(pattern, "") is not None
    except re.error:
        return False


def read_or_create_redaction_key(settings: Settings, folder: DataFolder) -> str:
    return settings.redaction.key or folder.read_or_create_secret(_REDACTION_KEY_FILE)


def _parse_detector(name: str) -> Detector:
    try:
        return Detector(name)
    except ValueError:
        raise BadSetting(
            f"redaction.detectors: {name!r} is not a detector.", hint=f"There are: {', '.join(Detector)}."
        ) from None


def _parse_named_pattern(line: str) -> NamedPattern:
    name, equals, pattern = (part.strip() for part in line.partition("="))
    if not (name and equals and pattern):
        raise BadSetting(f"redaction.patterns: {line!r} is not a name, an equals sign and a pattern.")
    return NamedPattern(name, pattern)
