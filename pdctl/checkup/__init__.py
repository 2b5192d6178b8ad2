"""What ``pdctl check`` does in a run, and what is kept from run to run: windows, mutes, evidence."""
