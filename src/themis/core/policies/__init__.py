"""Policies: who gets which GPUs in a round.

from themis.core.policies import policy
policy("themis", f=0.8).hold_round(view, rng)
"""

from themis.core.policies.base import (
    Allotment,
    AppView,
    AskBids,
    AskSolve,
    DirectPolicy,
    Notes,
    Plan,
    Policy,
    Round,
    View,
)
from themis.core.policies.registry import POLICIES, policy, policy_class, policy_options

__all__ = [
    "POLICIES",
    "Allotment",
    "AppView",
    "AskBids",
    "AskSolve",
    "DirectPolicy",
    "Notes",
    "Plan",
    "Policy",
    "Round",
    "View",
    "policy",
    "policy_class",
    "policy_options",
]
