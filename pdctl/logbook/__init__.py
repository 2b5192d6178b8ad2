"""Logs of several instances as one stream of entries: read, filtered, laid on one time line, summed up."""
