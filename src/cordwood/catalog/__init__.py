"""The catalog: endpoints and streams from files, keys from the key store."""
