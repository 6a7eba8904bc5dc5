"""The query path: compile a request, bind its values, look it up in the cache, run it on the engine, cache the answer."""
