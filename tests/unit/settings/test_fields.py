"""Every setting has its type, its sentence, and a way to be shown."""

import pytest

from cordwood.settings.fields import Field, fields, show
from cordwood.settings.load import load, value_of
from cordwood.settings.settings import Settings


@pytest.mark.parametrize("field", fields().values(), ids=lambda field: field.name)
def test_every_setting_says_what_it_is_for_in_a_sentence(field: Field) -> None:
    assert (field.meta.description or "").endswith(".")


@pytest.mark.parametrize("field", fields().values(), ids=lambda field: field.name)
def test_a_default_that_was_shown_is_read_as_itself(field: Field) -> None:
    shown = show(field, value_of(Settings(), field.name))
    in_force = value_of(load(environment={}).settings, field.name)
    assert value_of(load({field.name: shown}, environment={}).settings, field.name) == in_force


def test_no_two_settings_share_a_variable() -> None:
    variables = [field.variable for field in fields().values()]
    assert len(variables) == len(set(variables))


def test_a_secret_only_tells_whether_it_is_set() -> None:
    assert show(fields()["keys.private"], "hush") == "(set, not shown)"
    assert show(fields()["keys.private"], "") == ""


def test_a_password_inside_an_address_is_not_shown() -> None:
    assert show(fields()["engine"], "clickhouse://me:hush@host:1/db") == "clickhouse://me:…@host:1/db"
    assert show(fields()["engine"], "duckdb") == "duckdb"
