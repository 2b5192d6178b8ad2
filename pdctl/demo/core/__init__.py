"""The simulation itself: a discrete-event model with an injected clock. No I/O, no wall clock, no threads."""
