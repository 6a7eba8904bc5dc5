"""Form bodies, as browsers and Python's HTTPHandler send them: one event whose fields are strings."""

from urllib.parse import parse_qs

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.items import RawFields, add_event_from_fields
from cordwood.ingest.parsed_body import Body, ParsedBody

_encode = msgspec.json.Encoder().encode
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

_MAX_FORM_FIELDS = 10_000


def read_form(body: Body) -> ParsedBody:
    """Decode a form. A repeated field becomes an array; `metadata` may be a JSON object."""
    try:
        found = parse_qs(body.text, keep_blank_values=True, max_num_fields=_MAX_FORM_FIELDS, errors="replace")
    except ValueError as problem:
        raise BadBody(f"The form cannot be read: {problem}.") from problem
    if not found:
        raise BadBody("The form has no fields.")
    fields: RawFields = {
        name: msgspec.Raw(_encode(values[0] if len(values) == 1 else values)) for name, values in found.items()
    }
    for name, values in found.items():
        if name.lower() == "metadata" and len(values) == 1:
            fields[name] = _json_object_or_text(values[0], fields[name])
    parsed = ParsedBody(item_indexes=[])
    add_event_from_fields(fields, 0, parsed)
    return parsed


def _json_object_or_text(text: str, as_text: msgspec.Raw) -> msgspec.Raw:
    try:
        _object_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return as_text
    return msgspec.Raw(text.encode())
