"""Target and draft models, and what they are made of."""
