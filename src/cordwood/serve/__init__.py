"""The query path: compile a request, bind its values, look up or compute its answer, and cache the answer."""
