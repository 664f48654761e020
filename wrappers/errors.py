"""Exceptions that wrappers raise on purpose."""

from __future__ import annotations


class ResponseLost(Exception):
    """The answer to a turn did not arrive; whether the turn took effect is unknown.

    Sending the same action with the same ``turn_id`` again is safe: a turn that did take effect is
    answered from its receipt.
    """


class InjectedCrash(BaseException):
    """A fault on purpose: from here on nothing of the process counts, as if it had died.

    It is no ``Exception``, so that nobody handles it by the way.
    """
