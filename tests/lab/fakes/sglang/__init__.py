"""Stands in for the engine's package on lab hosts, so that a unit's command line is that of a real engine."""
