"""The fields of all settings: descriptions, printed values, environment variables and secrets."""

import pytest

from cordwood.settings.load import SettingField, format_value, load_settings, setting_fields, setting_value
from cordwood.settings.settings import Settings


@pytest.mark.parametrize("field", setting_fields().values(), ids=lambda field: field.name)
def test_every_setting_has_a_description(field: SettingField) -> None:
    assert (field.value_metadata.description or "").endswith(".")


@pytest.mark.parametrize("field", setting_fields().values(), ids=lambda field: field.name)
def test_a_printed_default_is_read_back(field: SettingField) -> None:
    printed = format_value(field, setting_value(Settings(), field.name))
    in_force = setting_value(load_settings(environment={}).settings, field.name)
    assert setting_value(load_settings({field.name: printed}, environment={}).settings, field.name) == in_force


def test_variables_are_unique() -> None:
    variables = [field.environment_variable for field in setting_fields().values()]
    assert len(variables) == len(set(variables))


def test_a_secret_is_shown_only_as_set_or_empty() -> None:
    assert format_value(setting_fields()["keys.private"], "hush") == "(set, not shown)"
    assert format_value(setting_fields()["keys.private"], "") == ""


def test_a_password_in_an_address_is_not_shown() -> None:
    assert format_value(setting_fields()["engine"], "clickhouse://me:hush@host:1/db") == "clickhouse://me:…@host:1/db"
    assert format_value(setting_fields()["engine"], "duckdb") == "duckdb"
