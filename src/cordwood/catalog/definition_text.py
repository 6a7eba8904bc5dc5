"""Check definitions that are sent over HTTP as the text of a file, as strictly as those that are sent as JSON."""

from collections.abc import Callable, Mapping

from cordwood.catalog.endpoint_fields import check_name
from cordwood.catalog.endpoint_file import settings_document
from cordwood.catalog.field_values import require_toml_value
from cordwood.catalog.stream_fields import check_transforms
from cordwood.catalog.stream_file import streams_document
from cordwood.catalog.toml_document import Document, Path
from cordwood.errors import BadDefinition, SetupFault


def read_endpoint_settings(text: str) -> Document:
    """Return the settings of an endpoint; raise BadEndpointFile for settings that HTTP does not accept."""
    document = settings_document("", text)
    _check_values(document, document.tables, ())
    _check(document, ("name",), lambda _, name: check_name(name), document.tables.get("name"))
    return document


def read_stream_table(text: str) -> tuple[Document, Mapping[str, object]]:
    """Return the single table of a stream; raise BadStreamFile for settings that HTTP does not accept."""
    document, tables = streams_document("", text)
    if len(tables) != 1 or not isinstance(tables[0], Mapping):
        second: Path = ("stream", 1) if len(tables) > 1 else ()
        raise document.fault_at("The text must have one stream.", second, "Write one table: [[stream]]")
    _check_values(document, tables[0], ("stream", 0))
    transforms = tables[0].get("transform")
    for number, transform in enumerate(transforms if isinstance(transforms, list) else ()):
        path = ("stream", 0, "transform", number)
        _check(document, path, lambda _, one: check_transforms("transform", [one]), transform)
    return document, tables[0]


def fixed_setting_fault(document: Document, path: Path, hint: str) -> SetupFault:
    """Return the error for a change of a setting that must keep its value."""
    return document.fault_at(f"{path[-1]} cannot be changed.", path, hint)


def _check_values(document: Document, table: Mapping[str, object], path: Path) -> None:
    for name, value in table.items():
        _check(document, (*path, name), require_toml_value, value)


def _check(document: Document, path: Path, check: Callable[[str, object], object], value: object) -> None:
    """Check a value; raise a fault with its place if it is refused."""
    try:
        check(str(path[-1]), value)
    except BadDefinition as fault:
        raise document.fault_at(fault.message, path, fault.hint) from fault
