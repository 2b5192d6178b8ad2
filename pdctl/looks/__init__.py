"""Looks at hosts: what serves there, processes, sockets, files, scripts, what changed, stacks."""
