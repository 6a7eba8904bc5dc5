/*
name = "bench.counts-by-project"
description = "Requests by hour and by the area of the product that they are for."
cache = "900s"

[parameters.start]
type = "TIMESTAMP"
required = true

[parameters.project]
required = true
*/
select
  timestamp_trunc(t.timestamp, hour) as hour,
  countif(r.path like '%/rest%') as rest,
  countif(r.path like '%/storage%') as storage,
  countif(r.path like '%/auth%') as auth,
  countif(r.path like '%/realtime%') as realtime
from `cloudflare.logs.prod` as t
cross join unnest(t.metadata) as m
cross join unnest(m.request) as r
where t.timestamp >= @start and t.project = @project
group by hour
order by hour
