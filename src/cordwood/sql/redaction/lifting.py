"""Takes what a sub-query reads of a raw column around it out of the sub-query, into the relation that has the column.

An engine works a sub-query out once for each value that it reads of the rows around it, and joins the results by these
values. Were they raw, how often that is and in which order rows come would tell which of them are the same.
"""

from sqlglot import exp

from cordwood.sql.redaction.raw import Source, Sources


def source_of(node: exp.Expr, sources: Sources) -> Source | None:
    """The one relation that the expression reads; None where it reads more, or none."""
    tables = {column.table for column in node.find_all(exp.Column)}
    return sources.get(next(iter(tables))) if len(tables) == 1 else None


def is_around(source: Source | None, node: exp.Expr) -> bool:
    """Whether a sub-query reads it of rows around the sub-query."""
    return source is not None and node.find_ancestor(exp.Select) is not source.reader


def lift(source: Source, value: exp.Expr, number: int) -> exp.Column:
    """The column of the relation that is to hold the value."""
    name = next((name for name, known in source.lifted.items() if known == value), f"lifted {number}")
    source.lifted.setdefault(name, value)
    column = exp.column(name, source.relation.alias_or_name, quoted=True)
    column.type = value.type
    return column


def put_in(source: Source) -> exp.Select:
    """Read the relation by a SELECT that hands on what is used of it, and adds what was lifted."""
    relation = source.relation
    select = exp.Select(
        expressions=[
            exp.alias_(value, name, quoted=True)
            for some in (source.used, source.lifted)
            for name, value in some.items()
        ]
    )
    joins = relation.args.get("joins")
    relation.set("joins", None)
    alias = exp.TableAlias(this=exp.to_identifier(relation.alias_or_name, quoted=True))
    relation.replace(exp.Subquery(this=select, alias=alias, joins=joins))
    select.set("from_", exp.From(this=relation))
    return select


def is_read_from_within(reader: exp.Expr | None, alias: str) -> bool:
    """Whether a sub-query of the SELECT reads a column of its relation of that name."""
    if reader is None:
        return False
    columns = (column for column in reader.find_all(exp.Column) if column.table == alias)
    return any(column.find_ancestor(exp.Select) is not reader for column in columns)
