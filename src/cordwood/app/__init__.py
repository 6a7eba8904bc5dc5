"""The composition root: builds and runs the service from its settings.

Only this package names concrete engines and stores.
"""
