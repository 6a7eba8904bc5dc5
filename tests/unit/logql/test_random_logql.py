"""Random LogQL queries are answered or refused. None causes an internal error."""

import random
from collections.abc import Sequence

import pytest

from cordwood.errors import LimitFault, QueryFault
from cordwood.logql.syntax import LogqlRequest, ResultKind
from tests.unit.logql.conftest import LogqlEngine
from tests.unit.logql.entries import END_US, MINUTE_US, START_US

LABELS = (
    "job",
    "level",
    "service_name",
    "source_name",
    "host",
    "status",
    "request_path",
    "path",
    "duration",
    "x_y_z",
    "Job",
)
TEXTS = ("", "mysql", "error", "a'b", 'q\\"', "é", "%", "{x}", "@p", "null", "$.a", "\\\\", "edge_logs", "app_logs")
PATTERNS = ("", ".*", ".+", "m.+", "(?i)ERROR", "a|b", "[a-z]+", "\\\\d+", "x{0,3}", "edge.*|app.*")
NUMBERS = ("0", "5", "404", "1.5", "10s", "1h30m", "250ms", "20MB", "1.5KiB", "-1", "1e3")


class QueryGenerator:
    """A generator of queries that are valid or almost valid."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def choose(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)

    def repeat(self, make: str, limit: int, join: str, least: int = 0) -> str:
        count = self.random.randint(least, limit)
        return join.join(str(getattr(self, make)()) for _ in range(count))

    def matcher(self) -> str:
        if self.random.random() < 0.5:
            return f'{self.choose(LABELS)}{self.choose(("=", "!="))}"{self.choose(TEXTS)}"'
        return f'{self.choose(LABELS)}{self.choose(("=~", "!~"))}"{self.choose(PATTERNS)}"'

    def comparison(self) -> str:
        if self.random.random() < 0.4:
            return self.matcher()
        return f"{self.choose(LABELS)} {self.choose(('=', '==', '!=', '>', '>=', '<', '<='))} {self.choose(NUMBERS)}"

    def stage(self) -> str:
        match self.random.randrange(6):
            case 0:
                return f'{self.choose(("|=", "!="))} "{self.choose(TEXTS)}"'
            case 1:
                return f'{self.choose(("|~", "!~"))} "{self.choose(PATTERNS)}"'
            case 2:
                return self.choose(("| json", "| logfmt", '| json x_y_z="a[0].b"', '| logfmt path="p"'))
            case 3:
                return f"| {self.choose(('drop', 'keep'))} {self.choose(LABELS)}, __error__"
            case _:
                return "| " + self.repeat("comparison", 3, self.choose((" and ", " or ", ", ", " ")), 1)

    def log_query(self) -> str:
        return f"{{{self.repeat('matcher', 2, ', ')}}} {self.repeat('stage', 4, ' ')}"

    def grouping(self) -> str:
        if self.random.random() < 0.3:
            return ""
        return f" {self.choose(('by', 'without'))} ({', '.join(self.random.sample(LABELS, self.random.randint(0, 3)))})"

    def range_query(self) -> str:
        width = self.choose(("1s", "1m", "3m", "1h")) + "]" + self.choose(("", "", " offset 1m"))
        if self.random.random() < 0.5:
            return f"{self.choose(('rate', 'count_over_time', 'bytes_rate', 'bytes_over_time'))}({self.log_query()} [{width})"
        unwrapped = (
            f"{self.log_query()} | unwrap {self.choose(('status', 'duration(duration)', 'bytes(x_y_z)'))} [{width}"
        )
        function = self.choose(("sum", "avg", "min", "max", "first", "last", "stddev", "stdvar"))
        if self.random.random() < 0.3:
            return f"quantile_over_time({self.choose(('0', '0.5', '0.99', '1'))}, {unwrapped}){self.grouping()}"
        return f"{function}_over_time({unwrapped}){'' if function == 'sum' else self.grouping()}"

    def metric(self, depth: int = 0) -> str:
        match self.random.randrange(5) if depth < 3 else 0:
            case 1 | 2:
                return f"{self.choose(('sum', 'avg', 'min', 'max', 'count', 'stddev'))}{self.grouping()} ({self.metric(depth + 1)})"
            case 3:
                return f"{self.choose(('topk', 'bottomk'))}(2, {self.metric(depth + 1)}){self.grouping()}"
            case 4:
                operator = self.choose(("+", "-", "*", "/", "%", "^", ">", "== bool", "<="))
                if self.random.random() < 0.2:
                    return f"({self.metric(depth + 1)}) or vector(0)"
                return (
                    f"({self.metric(depth + 1)}) {operator} {self.choose(('2', '-0.5', '0', self.metric(depth + 1)))}"
                )
            case _:
                return self.range_query()


@pytest.mark.parametrize("seed", range(12))
def test_a_random_query_is_answered_or_refused(logql: LogqlEngine, seed: int) -> None:
    grammar = QueryGenerator(seed)
    for _ in range(3):
        metric = grammar.metric()
        for request in (
            LogqlRequest(ResultKind.ENTRIES, (grammar.log_query(),), START_US, END_US),
            LogqlRequest(ResultKind.SAMPLES, (metric,), START_US, END_US, 2 * MINUTE_US),
            LogqlRequest(ResultKind.SAMPLES, (metric,), END_US, END_US, 1),
        ):
            try:
                logql.rows(request)
            except (QueryFault, LimitFault) as fault:
                assert fault.span is not None or fault.code.startswith("limit"), (
                    request.queries,
                    fault.one_line_text(),
                )
            except Exception as broken:
                raise AssertionError(request.queries[0]) from broken
