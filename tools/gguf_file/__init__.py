"""Read a GGUF file and write it as a Hugging Face folder."""
