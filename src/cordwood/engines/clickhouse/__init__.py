"""The ClickHouse engine. A server, a cluster, or chDB inside this process is used through the same client library."""
