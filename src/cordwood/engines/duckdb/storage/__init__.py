"""Store the events of the embedded engine: write-ahead log, memtables, flush, compaction, retention."""
