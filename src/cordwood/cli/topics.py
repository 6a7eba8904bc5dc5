"""The topics of `cordwood help TOPIC` that are not commands."""

from collections.abc import Mapping
from typing import Final

TOPICS: Final[Mapping[str, tuple[str, str]]] = {
    "lql": (
        "the short query language, with examples",
        """LQL finds events by words and fields, and counts them.

  error                          the message contains the word
  "connection reset"             the message contains the phrase
  ~^GET /rest                    the message matches a regular expression
  -timeout                       not
  m.status:>=500                 a field of metadata: numbers by > >= < <=, ranges as 200..299
  m.request.path:~^/auth         a field matches a regular expression
  m.tags:@>api                   a list contains the value
  t:last@15m  t:today            time
  f:auth_logs                    the sub-query
  s:event_message s:m.status     the columns of the answer
  c:count(*) c:group_by(t::minute)   a count for each minute

Parts are joined by AND; OR and parentheses are allowed.

  cordwood query logs.all -p project=default --lql 'f:edge_logs m.response.status_code:>=500 t:last@1h'""",
    ),
    "sandbox": (
        "queries of your own over an endpoint's sub-queries",
        """An endpoint with `sandbox = true` takes a query of yours, in sql= or lql=. It reads the sub-queries of the
endpoint (such as edge_logs of logs.all) as tables, and nothing else. The parameters of the endpoint apply inside.

  cordwood shell -p project=default                         then \\d lists the sub-queries
  cordwood query logs.all -p project=default --sql 'select count(*) as n from auth_logs'""",
    ),
    "environment": (
        "variables that commands read",
        """Every setting has a variable: CORDWOOD_, the section and the name, such as CORDWOOD_WEB_PORT for web.port.
`cordwood settings` prints all of them with their values and sources.

  CORDWOOD_URL   the service that client commands talk to; without it, the one on the data folder
  CORDWOOD_KEY   the key that they present
  NO_COLOR       no colours, if it is not empty
  PAGER          the program that shows long tables (default: less); empty: none""",
    ),
    "formats": (
        "how rows are written",
        """  table     for people; on a terminal fitted to its width. --vertical: one line for each value
  json      {"result": [...]}; times in microseconds since 1970
  ndjson    one JSON object a line, as rows arrive
  csv       with a header line; times in ISO 8601
  arrow, parquet   with types; to a file: -o rows.parquet

Over HTTP: ?format= or the header Accept; also format=prometheus.""",
    ),
    "exit-codes": (
        "what a command returns",
        """  0    done
  1    failed, or a check found a problem
  2    the command was not understood
  130  stopped by Ctrl-C""",
    ),
}
