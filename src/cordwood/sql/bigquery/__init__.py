"""What BigQuery's formats, zones and parts of times mean, whatever engine is to work them out."""
