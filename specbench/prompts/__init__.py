"""Where prompts come from: the native form, outside sets, random words, timed traces."""
