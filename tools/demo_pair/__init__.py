"""Parts of ``tools/train_demo_pair.py``: text, models, training stages, export, evaluation."""
