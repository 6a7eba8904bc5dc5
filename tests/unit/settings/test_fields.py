"""The fields of all settings: descriptions, printed values, variables and secrets."""

import pytest

from cordwood.settings.load import Field, fields, load, show, value_of
from cordwood.settings.settings import Settings


@pytest.mark.parametrize("field", fields().values(), ids=lambda field: field.name)
def test_every_setting_has_a_description(field: Field) -> None:
    assert (field.meta.description or "").endswith(".")


@pytest.mark.parametrize("field", fields().values(), ids=lambda field: field.name)
def test_a_printed_default_is_read_back(field: Field) -> None:
    printed = show(field, value_of(Settings(), field.name))
    in_force = value_of(load(environment={}).settings, field.name)
    assert value_of(load({field.name: printed}, environment={}).settings, field.name) == in_force


def test_variables_are_unique() -> None:
    variables = [field.variable for field in fields().values()]
    assert len(variables) == len(set(variables))


def test_a_secret_is_shown_only_as_set_or_empty() -> None:
    assert show(fields()["keys.private"], "hush") == "(set, not shown)"
    assert show(fields()["keys.private"], "") == ""


def test_a_password_in_an_address_is_not_shown() -> None:
    assert show(fields()["engine"], "clickhouse://me:hush@host:1/db") == "clickhouse://me:…@host:1/db"
    assert show(fields()["engine"], "duckdb") == "duckdb"
