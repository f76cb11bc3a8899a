"""Checkpoints read as plain data, without torch: ``read_target`` and ``read_draft``."""

from specbench.checkpoint.draft import read_draft
from specbench.checkpoint.folder import Folder
from specbench.checkpoint.headers import TensorEntry, read_header
from specbench.checkpoint.target import read_target

__all__ = ["Folder", "TensorEntry", "read_draft", "read_header", "read_target"]
