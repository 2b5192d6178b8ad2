"""The inventory: pdctl.toml, or URLs on the command line, made into a Cluster. Pure: text in, values out."""
