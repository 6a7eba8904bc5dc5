"""Store the events of the embedded engine, with a write-ahead log, memtables, flushes, compaction and retention."""
