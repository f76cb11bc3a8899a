"""The in-process engine: an exact EAGLE-3 reference. The only place, with few others, of torch."""
