/*
name = "usage.api-counts"
description = "Requests to the gateway per time bucket, by the area of the product that they are for."
max_rows = 1000
cache = "900s"
warm = "300s"
sandbox = true
redact_pii = false

[parameters.interval]
required = true
one_of = ["hourly", "daily", "minutely", "1hr", "1day", "7day"]
description = "The last hour by the hour, 7 days by the day, 60 minutes by the minute; 1hr, 1day, 7day as dashboards spell it."

[parameters.project]
required = true
kind = "regex"
description = "A regular expression (RE2) that the url of a request matches somewhere."
example = "default"

# An alert. Remove the first hash of each line below in a copy of this file; or put the lines below [alert] into a file that
# ends in .alert.toml, after the line endpoint = "usage.api-counts": that watches the endpoint as it ships.
#
# [alert]
# every = "5m"
# condition = "missing"
# severity = "critical"
# text = "No request of the project default was counted in the last hour."
# parameters = {interval = "minutely", project = "default"}
# send_to = ["on-call"]
*/
with
  dates as (
    select
      case
        when @interval in ('hourly', 'minutely', '1hr') then timestamp_sub(current_timestamp(), interval 1 hour)
        when @interval = '1day' then timestamp_sub(current_timestamp(), interval 24 hour)
        else timestamp_sub(current_timestamp(), interval 7 day)
      end as start
  ),

  chart_counts as (
    select
      case
        when @interval in ('hourly', '1day') then timestamp_trunc(t.timestamp, hour)
        when @interval in ('minutely', '1hr') then timestamp_trunc(t.timestamp, minute)
        else timestamp_trunc(t.timestamp, day)
      end as timestamp,
      countif(r.path like '%/rest%') as total_rest_requests,
      countif(r.path like '%/storage%') as total_storage_requests,
      countif(r.path like '%/auth%') as total_auth_requests,
      countif(r.path like '%/realtime%') as total_realtime_requests
    from `cloudflare.logs.prod` as t
    cross join unnest(t.metadata) as m
    cross join unnest(m.request) as r
    where t.timestamp >= (select start from dates)
      and regexp_contains(r.url, @project)
    group by timestamp
  )

select
  datetime(timestamp, 'UTC') as timestamp,
  total_rest_requests,
  total_storage_requests,
  total_auth_requests,
  total_realtime_requests
from chart_counts
order by timestamp asc
