"""Read batches of Elixir's and Erlang's loggers, as BERT or as JSON: `{"batch": […]}` with one event per item."""

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats.erlang_terms import BadTerm, read_term
from cordwood.ingest.item_count import too_many
from cordwood.ingest.items import read_items
from cordwood.ingest.posted import Body, Reading

_encode = msgspec.json.Encoder().encode

_TERMS_OF_AN_ITEM = 16


def read_bert(body: Body) -> Reading:
    try:
        value = read_term(body.data, body.most_items * _TERMS_OF_AN_ITEM)
    except (BadTerm, RecursionError) as problem:
        raise BadBody(f"The body is not BERT: {problem}.") from problem
    batch = value.get("batch", value) if isinstance(value, dict) else value
    items = batch if isinstance(batch, list) else [batch]
    if len(items) > body.most_items:
        raise too_many(body.most_items)
    return read_items([_encode(item).decode() for item in items], Reading.of(body))
