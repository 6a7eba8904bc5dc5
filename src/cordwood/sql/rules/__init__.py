"""BigQuery's functions as every engine means them: formats and limits, and rules composed from an engine's words."""
