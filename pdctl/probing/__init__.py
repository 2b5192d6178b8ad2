"""Real requests sent and watched: trials, and the gauges while they run."""
