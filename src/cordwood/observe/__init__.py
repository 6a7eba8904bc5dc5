"""Every fact worth noting, as a struct; the log and the metrics choose from them."""
