"""ClickHouse: a server or a cluster, or chDB inside the process, through one client."""
