"""Training: configs, schedules, the engine and sweeps over many runs."""
