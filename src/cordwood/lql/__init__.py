"""LQL, the short query language: text to the same tree that `sql/parse` makes, so that it means nothing of its own."""
