"""The catalog: endpoints, streams and alerts from files, and keys from the key store."""
