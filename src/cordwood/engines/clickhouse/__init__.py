"""The ClickHouse engine: a server, a cluster, or chDB inside this process, all through the same client library."""
