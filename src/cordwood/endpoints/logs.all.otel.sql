/*
name = "logs.all.otel"
description = "The logs of one project as one table, asked in ClickHouse SQL, within an optional time range."
dialect = "clickhouse"
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
# ends in .alert.toml, after the line endpoint = "logs.all.otel": that watches the endpoint as it ships.
#
# [alert]
# every = "1m"
# condition = "errors > 10"
# sql = "select source, count() as errors from logs where severity_text in ('ERROR', 'FATAL') group by source"
# group_by = ["source"]
# severity = "error"
# text = "{errors} errors of {source} in five minutes"
# parameters = {project = "default", iso_timestamp_start = "now-5m"}
# send_to = ["on-call"]
*/
with
  edge_logs as (
    select *
    from `cloudflare.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  postgres_logs as (
    select *
    from `postgres.logs` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  function_edge_logs as (
    select *
    from `deno-relay-logs` as t
    where t.metadata.project_ref = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  function_logs as (
    select *
    from `deno-subhosting-events` as t
    where t.metadata.project_ref = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  auth_logs as (
    select *
    from `gotrue.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  realtime_logs as (
    select *
    from `realtime.logs.prod` as t
    where t.metadata.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  storage_logs as (
    select *
    from `storage.logs.prod.2` as t
    where t.metadata.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  postgrest_logs as (
    select *
    from `postgREST.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  pgbouncer_logs as (
    select *
    from `pgbouncer.logs.prod` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  ),

  -- Every stream that is not named above, under its own name.
  other_streams as (
    select *
    from `*` as t
    where t.project = @project
      and (@iso_timestamp_start is null or t.timestamp > @iso_timestamp_start)
      and (@iso_timestamp_end is null or t.timestamp <= @iso_timestamp_end)
  )

select id, timestamp, project, source, event_message, severity_text, log_attributes
from logs
order by timestamp desc
limit 100
