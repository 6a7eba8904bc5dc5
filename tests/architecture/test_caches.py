"""Check that each cache is a BoundedCache, which is limited in bytes, or is listed here with a reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import Module, modules

# Decorators and classes for caches that are limited by the number of entries, or have no limit.
CACHES_WITHOUT_BYTE_LIMIT = {"lru_cache", "cache", "OrderedDict"}

ALLOWED_CACHES = {
    ("bounded_cache.py", "OrderedDict"): "the one place that counts bytes",
    ("bounded_cache.py", "lru_cache"): "for texts of a bounded length alone",
    ("engines/duckdb/storage/recent_ids.py", "cache"): "of no argument",
    ("engines/isolation.py", "cache"): "the parts of the engine's grammar",
    ("engines/project_shapes.py", "OrderedDict"): "shapes of projects: each has a bounded number of paths",
    ("ingest/derived_fields.py", "lru_cache"): "what the operator's streams file derives",
    ("ingest/shape_decoder.py", "OrderedDict"): "counts the paths of its decoders",
    ("serve/paging.py", "OrderedDict"): "2,000 outcomes by digest: 1 MB",
    ("serve/query_executor.py", "OrderedDict"): "4,096 durations by digest: 1 MB",
    ("serve/admission.py", "OrderedDict"): "10,000 accounts and 10,000 buckets: ids of valid keys, or addresses: 8 MB",
    ("serve/cached_answers.py", "OrderedDict"): "20,000 pairs of digests: 7 MB",
    ("settings/load.py", "cache"): "of no argument",
    ("sql/tree_printer.py", "cache"): "one pattern an engine",
    ("sql/query_templates.py", "cache"): "templates of our own",
    ("sql/lowering.py", "lru_cache"): "templates of our own",
    ("web/describe/openapi.py", "cache"): "of no argument",
    ("web/explorer.py", "cache"): "files that ship",
}


def cache_names(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"functools", "collections"}:
            yield from (name.name for name in node.names if name.name in CACHES_WITHOUT_BYTE_LIMIT)
        if (
            isinstance(node, ast.Attribute)
            and node.attr in CACHES_WITHOUT_BYTE_LIMIT
            and ast.unparse(node.value)
            in {
                "functools",
                "collections",
            }
        ):
            yield node.attr


def test_a_cache_that_counts_entries_is_listed_with_its_reason() -> None:
    assert {(module.name, kind) for module in modules() for kind in cache_names(module)} == ALLOWED_CACHES.keys()


@pytest.mark.parametrize(
    "text", ["from functools import lru_cache", "collections.OrderedDict()", "@functools.cache\ndef f(): ..."]
)
def test_each_spelling_is_detected(text: str) -> None:
    assert list(cache_names(Module(Path("x.py"), text, ast.parse(text))))
