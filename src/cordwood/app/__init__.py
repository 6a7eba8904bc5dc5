"""The only room that names concrete engines, stores and caches: settings in, a running service out."""
