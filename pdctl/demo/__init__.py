"""A simulated prefill/decode cluster whose truth is known: pure core, real servers on loopback, and virtual time."""
