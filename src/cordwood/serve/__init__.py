"""The journey of an answer: find, compile, bind, look up, run, keep."""
