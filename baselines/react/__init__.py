"""The policy that asks a language model, and a model server to test such policies against."""

from __future__ import annotations
