/*
name = "bench.messages-like"
description = "The newest messages of all projects that a pattern matches."

[parameters.pattern]
kind = "regex"
required = true
*/
select t.id, t.timestamp, t.event_message
from `cloudflare.logs.prod` as t
where regexp_contains(t.event_message, @pattern)
order by t.timestamp desc
limit 100
