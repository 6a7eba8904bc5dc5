/*
name = "logs.all"
description = "The logs of one project, newest first, within an optional time range."
max_rows = 1000
sandbox = true
redact_pii = false

[parameters.project]
required = true
description = "The project whose logs are read."
example = "default"

[parameters.iso_timestamp_start]
type = "TIMESTAMP"
description = "Only events after this ISO 8601 time; empty or absent: no lower bound."

[parameters.iso_timestamp_end]
type = "TIMESTAMP"
description = "Only events up to and including this ISO 8601 time; empty or absent: no upper bound."

# An alert. Remove the first hash of each line below in a copy of this file; or put the lines below [alert] into a file that
# ends in .alert.toml, after the line endpoint = "logs.all": that watches the endpoint as it ships.
#
# [alert]
# every = "1m"
# for = "5m"
# condition = "rows > 10"
# lql = "f:edge_logs m.response.status_code:>=500"
# severity = "error"
# text = "{value} requests failed in five minutes, for example: {event_message}"
# parameters = {project = "default", iso_timestamp_start = "now-5m"}
# send_to = ["on-call"]
*/
with
  edge_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `cloudflare.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  postgres_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `postgres.logs` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  function_edge_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `deno-relay-logs` as t
    cross join unnest(t.metadata) as m
    where m.project_ref = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  function_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `deno-subhosting-events` as t
    cross join unnest(t.metadata) as m
    where m.project_ref = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  auth_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `gotrue.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  realtime_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `realtime.logs.prod` as t
    cross join unnest(t.metadata) as m
    where m.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  storage_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `storage.logs.prod.2` as t
    cross join unnest(t.metadata) as m
    where m.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  postgrest_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `postgREST.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  ),

  pgbouncer_logs as (
    select t.id, t.timestamp, t.event_message, t.metadata
    from `pgbouncer.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
    order by t.timestamp desc
  )

select id, timestamp, event_message, metadata
from edge_logs
order by timestamp desc
limit 100
