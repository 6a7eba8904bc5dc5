"""Compilation of a case's fences to a statement."""

import tomllib
from uuid import NAMESPACE_DNS, uuid5

from cordwood.engines.engine import Engine
from cordwood.lql.compile import check_lql_patterns, compile_lql, explain_lql
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.redaction import Detector, NamedPattern, RedactionRules, RedactMode
from cordwood.sql.compile import (
    compile_sandbox_query,
    compile_saved_query,
    compile_standalone_query,
    parse_and_check_endpoint,
)
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement
from tests.spec_runner.page import Case

DeclaredParameters = dict[str, tuple[Kind, str | None]]


def compile_case(case: Case, engine: Engine) -> Statement:
    """Compile the case as an endpoint if it has streams, parameters, a sandbox query or LQL; otherwise as a separate
    query.
    """
    target, shapes = engine.compile_target, engine.shapes_by_stream()
    sql = case.text("sql") or ""
    sandbox, lql = case.text("sandbox"), case.text("lql")
    if not (case.fences_of("stream") or case.text("params") or sandbox or lql):
        return compile_standalone_query(sql, target)
    program, redaction = parse_and_check_endpoint(_endpoint(case, sql)), _redaction(case)
    if sandbox is not None:
        return compile_sandbox_query(program, sandbox, target, shapes, redaction)
    if lql is not None:
        check_lql_patterns(lql, engine.regex_error)
        return compile_lql(program, lql, target, shapes, redaction)
    return compile_saved_query(program, target, shapes, redaction)


def translated_sql(case: Case, engine: Engine) -> str:
    """Return the SQL into which the case's LQL is translated."""
    program = parse_and_check_endpoint(_endpoint(case, case.text("sql") or ""))
    return explain_lql(program, case.text("lql") or "", engine.compile_target, engine.shapes_by_stream())


def rules_of_redact_fence(case: Case) -> RedactionRules:
    """Return the rules of the case's `redact` fence. Missing `detectors` or `patterns` have default values."""
    fence_text = tomllib.loads(case.text("redact") or "")
    shipped = RedactionRules()
    detectors = tuple(map(Detector, fence_text["detectors"])) if "detectors" in fence_text else shipped.detectors
    return RedactionRules(
        detectors, tuple(NamedPattern(*named_patterns) for named_patterns in fence_text.get("patterns", {}).items())
    )


def _redaction(case: Case) -> RedactionPolicy | None:
    """Return the redaction of the case's `redact` fence, or None if there is no such fence."""
    fence_text = case.text("redact")
    if fence_text is None:
        return None
    return RedactionPolicy(
        RedactMode(tomllib.loads(fence_text).get("mode", RedactMode.REPLACE)), rules_of_redact_fence(case)
    )


def parameter_values(case: Case) -> dict[str, str]:
    """Return the values of the case's parameters as texts, as they are in a query string."""
    return {name: value for name, (_, value) in _declared_parameters(case).items() if value is not None}


def _endpoint(case: Case, sql: str) -> Endpoint:
    parameters = tuple(Parameter(name, kind) for name, (kind, _) in _declared_parameters(case).items())
    return Endpoint(
        "spec",
        uuid5(NAMESPACE_DNS, "spec"),
        sql,
        "1",
        accepts_sandbox_queries=True,
        parameters=parameters,
        time_zone=_zone(case),
    )


def _zone(case: Case) -> str:
    return (case.text("zone") or "UTC").strip()


def _declared_parameters(case: Case) -> DeclaredParameters:
    """Parse the declared parameters.

    `name = "value"` declares a string, and `name = {type = "INT64", value = "5"}` a parameter of the given type.
    """
    declared: DeclaredParameters = {}
    for name, stated in tomllib.loads(case.text("params") or "").items():
        if isinstance(stated, dict):
            declared[name] = (Kind(stated.get("type", "STRING")), stated.get("value"))
        else:
            declared[name] = (Kind.STRING, str(stated))
    return declared
