"""The policy files that come with the package still speak of the variants there are."""

from __future__ import annotations

from autotune.fingerprint import fingerprint
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune_policies.shipped import load_shipped


def test_every_shipped_choice_was_measured_with_the_source_of_now() -> None:
    """One that is stale would not be served: tune again and export with --shipped."""
    load_plugins()
    policies, notes = load_shipped()
    assert notes == []
    assert len(policies) >= 40
    stale = {
        f"{policy.problem.operation}/{choice.variant}"
        for policy in policies
        for choice in (*policy.choices, *policy.variants)
        if fingerprint(registry.variant(policy.problem.operation, choice.variant))
        != choice.fingerprint
    }
    assert stale == set()


def test_a_shipped_policy_says_where_it_comes_from() -> None:
    for policy in load_shipped()[0]:
        assert policy.origin == "shipped"
        assert policy.device.startswith("cuda-sm90-132sm-")
        assert policy.created.startswith("20")
        assert {"driver", "cuda", "cupy", "nvrtc"} <= policy.toolchain.keys()
