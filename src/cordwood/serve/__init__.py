"""The query path: compile, bind, look up the cache, run on the engine, store the answer in the cache."""
