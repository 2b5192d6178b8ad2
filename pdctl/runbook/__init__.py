"""Running playbooks: where they are found, running their steps, the transcript that a run leaves and goes on from."""
