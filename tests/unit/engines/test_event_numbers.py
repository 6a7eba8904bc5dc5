"""Numbers from events in answers: integers have no fraction, wherever they are in a value."""

import msgspec
import pytest

from cordwood.engines.records import (
    convert_struct_or_array_json,
    integer_if_integral,
    mark_event_numbers,
    read_event_number,
)
from cordwood.model.datatype import Cell, Datatype, Kind
from cordwood.sql.datatypes import EVENT_NUMBER, FLOAT64, STRING, array_of, struct_of


@pytest.mark.parametrize(
    ("number", "cell"), [(2.0, 2), (0.5, 0.5), (-0.0, 0), (1e15, 1e15), (999999999999999.0, 999999999999999)]
)
def test_an_integral_number_is_an_integer_while_a_float_holds_it_exactly(number: float, cell: Cell) -> None:
    assert (integer_if_integral(number), type(integer_if_integral(number))) == (cell, type(cell))


@pytest.mark.parametrize(
    ("text", "cell"),
    [("1715776496123456789", 1715776496123456789), ("0.5", 0.5), ("2.0", 2), ("Infinity", "Infinity"), ("NaN", "NaN")],
)
def test_a_number_that_an_engine_returns_as_json_keeps_its_digits(text: str, cell: Cell) -> None:
    assert read_event_number(text) == cell


def test_numbers_in_arrays_and_structs_are_marked_by_the_declared_type() -> None:
    engine_type = struct_of([("a", array_of(FLOAT64)), ("b", FLOAT64), ("c", STRING)])
    declared_type = struct_of([("A", array_of(EVENT_NUMBER)), ("B", FLOAT64), ("C", None)])
    marked = mark_event_numbers(engine_type, declared_type)
    assert marked == struct_of([("a", array_of(EVENT_NUMBER)), ("b", FLOAT64), ("c", STRING)])
    text = '{"a": [1.0, 0.5, null], "b": 2.0, "c": "x"}'
    assert convert_struct_or_array_json(text, marked) == msgspec.Raw(b'{"a":[1,0.5,null],"b":2.0,"c":"x"}')


def test_a_declared_type_of_another_kind_marks_nothing() -> None:
    assert mark_event_numbers(Datatype(Kind.VARIANT), EVENT_NUMBER) == Datatype(Kind.VARIANT)
    assert mark_event_numbers(FLOAT64, None) == FLOAT64
