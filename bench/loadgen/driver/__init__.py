"""The driver of the load generators' benchmark. Python's standard library only."""
