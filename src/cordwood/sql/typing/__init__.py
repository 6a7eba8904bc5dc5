"""Type inference: find BigQuery's type of every expression from the tree alone."""

from cordwood.sql.typing.annotate import annotate
from cordwood.sql.typing.datatypes import datatype_of, inherit, kind_of, typed_as

__all__ = ["annotate", "datatype_of", "inherit", "kind_of", "typed_as"]
