"""pdctl: what is wrong with a live PD-disaggregated SGLang cluster, with evidence."""

__version__ = "0.1.0"
