"""An EAGLE-3 draft for any Llama target: the target's own text, its features, training, export."""
