"""Keys that settings define, and the first keys of a new store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.app.configuration import create_first_keys, fixed_keys
from cordwood.catalog.key_store import hash_secret
from cordwood.catalog.sqlite_keys import SQLiteKeyStore
from cordwood.errors import BadSetting
from cordwood.settings.settings import KeySettings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteKeyStore]:
    store = SQLiteKeyStore(tmp_path / "keys.db")
    yield store
    store.close()


def test_settings_give_keys_by_value_or_by_the_first_line_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "public").write_text("from-a-file \nand more\n")
    private, public = fixed_keys(KeySettings(private="by-value", public_file=str(tmp_path / "public")))
    assert (private.caller.scopes, private.secret_digest) == (frozenset({"private"}), hash_secret("by-value"))
    assert (public.caller.scopes, public.secret_digest) == (frozenset({"public"}), hash_secret("from-a-file"))


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"keys\.private and keys\.private_file are both given"):
        fixed_keys(KeySettings(private="a", private_file="b"))


@pytest.mark.parametrize(("text", "message"), [(None, "cannot be read"), ("", "is empty"), ("\nlater", "is empty")])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "private"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadSetting, match=message):
        fixed_keys(KeySettings(private_file=str(file)))


def test_a_new_store_gets_a_private_and_a_public_key_once(store: SQLiteKeyStore) -> None:
    first_pair = create_first_keys(store)
    assert first_pair is not None
    kinds = [
        store.find(hash_secret(secret)) for secret in (first_pair.private_key_secret, first_pair.public_key_secret)
    ]
    assert [kind.terms.scopes for kind in kinds if kind] == [{"private"}, {"public"}]
    assert create_first_keys(store) is None


def test_a_store_of_revoked_keys_gets_no_new_ones(store: SQLiteKeyStore) -> None:
    create_first_keys(store)
    for key in store.active_keys():
        store.revoke(key.id)
    assert create_first_keys(store) is None
