"""The compiler's stages: parse, admit, resolve, lower and emit, for saved, sandbox and stand-alone SQL."""

from collections.abc import Callable, Collection, Mapping

import msgspec

from cordwood.errors import NOT_COMPILED, CompileTooLong
from cordwood.model.endpoint import Endpoint
from cordwood.model.shape import Shape
from cordwood.sql.admit import admit
from cordwood.sql.budget import compiling
from cordwood.sql.dialects.explain import explaining
from cordwood.sql.dialects.slips import slips
from cordwood.sql.emit import cap, emit
from cordwood.sql.parse import parse
from cordwood.sql.program import Program, as_file_error, parse_endpoint, with_positions
from cordwood.sql.redaction.flow import redact_reads
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.resolve.entry import check_endpoint, resolve_sandbox, resolve_saved, resolve_standalone
from cordwood.sql.stages import Parsed, Resolved, Statement
from cordwood.sql.target import Target

__all__ = ["Program", "compile_alone", "compile_sandbox", "compile_saved", "compile_visiting", "read_endpoint"]

Shapes = Mapping[str, Shape]


def read_endpoint(endpoint: Endpoint, streams: Collection[str] | None = None) -> Program:
    """Return the program of an endpoint; raise BadEndpointFile with the position if it cannot be served.

    With `streams` given, every table must be one of them or a sub-query.
    """
    try:
        with explaining(endpoint.sql), compiling():
            program = parse_endpoint(endpoint)
            check_endpoint(with_positions(program), streams)
    except NOT_COMPILED as fault:
        raise as_file_error(fault, endpoint) from fault
    return program


def compile_saved(program: Program, target: Target, shapes: Shapes, redaction: Redaction | None = None) -> Statement:
    """Compile the endpoint's own query; errors have their position in the endpoint's SQL."""
    shown = _shown(shapes, redaction)

    def compiled(program: Program) -> Statement:
        return _emitted(_hidden(resolve_saved(program, target, shown), redaction, shown), program, target)

    try:
        return _bounded(lambda: compiled(program))
    except CompileTooLong:
        raise
    except NOT_COMPILED:
        with explaining(program.endpoint.sql):
            return _bounded(lambda: compiled(with_positions(program)))


def compile_sandbox(
    program: Program, text: str, target: Target, shapes: Shapes, redaction: Redaction | None = None
) -> Statement:
    """Compile a sandbox query, which can only read the endpoint's sub-queries."""
    with explaining(text):
        statement = compile_visiting(program, lambda: parse(text), target, shapes, redaction)
    columns = {name.lower() for stream in statement.streams for name in target.stream_table(stream).columns}
    found = slips(text, columns)
    return msgspec.structs.replace(statement, notices=found) if found else statement


def compile_visiting(
    program: Program,
    read: Callable[[], Parsed],
    target: Target,
    shapes: Shapes,
    redaction: Redaction | None = None,
    own_functions: Collection[str] = (),
) -> Statement:
    """Compile a sandbox query in the language of the parser `read`; it is admitted and resolved like any other.

    `own_functions` are internal functions that the parsed tree may call.
    """
    shown = _shown(shapes, redaction)

    def compiled() -> Statement:
        resolved = resolve_sandbox(program, admit(read(), own_functions), target, shown)
        return _emitted(_hidden(resolved, redaction, shown), program, target)

    return _bounded(compiled)


def _shown(shapes: Shapes, redaction: Redaction | None) -> Shapes:
    return redaction.shown(shapes) if redaction else shapes


def _hidden(resolved: Resolved, redaction: Redaction | None, shapes: Shapes) -> Resolved:
    return redact_reads(resolved, redaction, shapes) if redaction else resolved


def compile_alone(text: str, target: Target) -> Statement:
    """Compile SQL that reads only its own WITH, has no parameters, and has no limit on rows."""
    with explaining(text):
        return _bounded(lambda: emit(resolve_standalone(admit(parse(text)), target), target, {}))


def _emitted(resolved: Resolved, program: Program, target: Target) -> Statement:
    cap(resolved.tree, program.endpoint.max_rows)
    return emit(resolved, target, program.parameters)


def _bounded(stages: Callable[[], Statement]) -> Statement:
    with compiling():
        return stages()
