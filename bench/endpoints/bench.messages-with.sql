/*
name = "bench.messages-with"
description = "The newest messages of all projects that hold a piece of text."

[parameters.text]
required = true
*/
select t.id, t.timestamp, t.event_message
from `cloudflare.logs.prod` as t
where strpos(t.event_message, @text) > 0
order by t.timestamp desc
limit 100
