"""Typed access to the values of a parsed record; a wrong type is an error that names the key."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from specbench.errors import WorkloadError
