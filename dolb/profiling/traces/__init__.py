"""Read DDP's and Horovod's traces into one table of events."""
