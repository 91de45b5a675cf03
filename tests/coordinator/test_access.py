"""Access rules and their decisions, as in Kafka's StandardAuthorizer. The table is that of `base.access`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base.access import UNKNOWN_HOST, Operation, Pattern, Permission, Resource, Rule, Table

GROUP, TOPIC, CLUSTER = Resource
ANA, BO = "User:ana", "User:bo"
HERE = "/10.0.0.1"


def allow(
    principal: str, operation: str, name: str = "g", *, pattern: str = "LITERAL", host: str = "*", of: str = "GROUP"
) -> Rule:
    return Rule(
        principal=principal,
        operation=Operation(operation),
        resource=Resource(of),
        name=name,
        pattern=Pattern(pattern),
        host=host,
    )


def deny(principal: str, operation: str, name: str = "g", **more: str) -> Rule:
    rule = allow(principal, operation, name, **more)
    fields = {each: getattr(rule, each) for each in Rule.__struct_fields__}
    return Rule(**{**fields, "permission": Permission.DENY})


R, D, X = Operation.READ, Operation.DESCRIBE, Operation.DELETE

DECISIONS = {
    # of these rules                                         asked by ana       of group      the answer is
    "none":                 ([],                                         (R, "g"),        False),
    "the same":             ([allow(ANA, "READ")],                       (R, "g"),        True),
    "another principal":    ([allow(BO, "READ")],                        (R, "g"),        False),
    "everybody":            ([allow("User:*", "READ")],                  (R, "g"),        True),
    "a principal is no pattern": ([allow("User:a*", "READ")],            (R, "g"),        False),
    "another type":         ([allow("Group:ana", "READ")],               (R, "g"),        False),
    "another operation":    ([allow(ANA, "READ")],                       (X, "g"),        False),
    "all operations":       ([allow(ANA, "ALL")],                        (X, "g"),        True),
    "another group":        ([allow(ANA, "READ", "h")],                  (R, "g"),        False),
    "any group":            ([allow(ANA, "READ", "*")],                  (R, "g"),        True),
    "a prefix":             ([allow(ANA, "READ", "or", pattern="PREFIXED")], (R, "orders"), True),
    "a prefix of itself":   ([allow(ANA, "READ", "orders", pattern="PREFIXED")], (R, "orders"), True),
    "no prefix":            ([allow(ANA, "READ", "ord", pattern="PREFIXED")], (R, "or"),   False),
    "a prefix is literal":  ([allow(ANA, "READ", "or")],                 (R, "orders"),   False),
    "a star in a prefix":   ([allow(ANA, "READ", "*", pattern="PREFIXED")], (R, "g"),     False),
    "another case":         ([allow(ANA, "READ", "G")],                  (R, "g"),        False),
    "of a topic":           ([allow(ANA, "READ", of="TOPIC")],           (R, "g"),        False),
    "read describes":       ([allow(ANA, "READ")],                       (D, "g"),        True),
    "write describes":      ([allow(ANA, "WRITE")],                      (D, "g"),        True),
    "delete describes":     ([allow(ANA, "DELETE")],                     (D, "g"),        True),
    "alter describes":      ([allow(ANA, "ALTER")],                      (D, "g"),        True),
    "its configuration does not": ([allow(ANA, "ALTER_CONFIGS")],        (D, "g"),        False),
    "to describe is not to read": ([allow(ANA, "DESCRIBE")],             (R, "g"),        False),
    "all but denied":       ([allow(ANA, "ALL"), deny(ANA, "READ")],     (R, "g"),        False),
    "denied first":         ([deny(ANA, "READ"), allow(ANA, "ALL")],     (R, "g"),        False),
    "everybody is denied":  ([allow(ANA, "READ"), deny("User:*", "READ")], (R, "g"),      False),
    "all is denied":        ([allow(ANA, "READ"), deny(ANA, "ALL")],     (R, "g"),        False),
    "any group is denied":  ([allow(ANA, "READ"), deny(ANA, "READ", "*")], (R, "g"),      False),
    "a prefix is denied":   ([allow(ANA, "READ", "orders"), deny(ANA, "READ", "o", pattern="PREFIXED")],
                             (R, "orders"),                                               False),
    "others are denied":    ([allow(ANA, "READ"), deny(BO, "READ")],     (R, "g"),        True),
    "a denied read describes": ([allow(ANA, "ALL"), deny(ANA, "READ")],  (D, "g"),        True),
    "a denied description reads": ([allow(ANA, "READ"), deny(ANA, "DESCRIBE")], (R, "g"), True),
    "and is denied":        ([allow(ANA, "READ"), deny(ANA, "DESCRIBE")], (D, "g"),       False),
    "from here":            ([allow(ANA, "READ", host="10.0.0.1")],      (R, "g"),        True),
    "from elsewhere":       ([allow(ANA, "READ", host="10.0.0.2")],      (R, "g"),        False),
    "denied here":          ([allow(ANA, "READ"), deny(ANA, "READ", host="10.0.0.1")], (R, "g"), False),
    "denied elsewhere":     ([allow(ANA, "READ"), deny(ANA, "READ", host="10.0.0.2")], (R, "g"), True),
}  # fmt: skip

FROM_NOWHERE = {
    # of these rules                                         asked from an unknown host, the answer is
    "from one host":        ([allow(ANA, "READ", host="10.0.0.1")],                            False),
    "from anywhere":        ([allow(ANA, "READ")],                                             True),
    "denied at one host":   ([allow(ANA, "READ"), deny(ANA, "READ", host="10.0.0.1")],         False),
    "denied to others":     ([allow(ANA, "READ"), deny(BO, "READ", host="10.0.0.1")],          True),
}  # fmt: skip


@pytest.mark.parametrize("name", FROM_NOWHERE)
@pytest.mark.parametrize("host", [UNKNOWN_HOST, "/"])
def test_an_unknown_host_gets_every_denial_and_no_permission_of_a_host(name: str, host: str):
    rules, expected = FROM_NOWHERE[name]
    assert Table(rules).allows(ANA, host, R, GROUP, "g") is expected


@pytest.mark.parametrize("name", DECISIONS)
def test_rules_decide_as_kafkas_do(name: str):
    """S61: rules decide as Kafka's do. StandardAuthorizerTest, AclAuthorizerTest: the cases without a broker."""
    rules, (operation, group_id), expected = DECISIONS[name]
    table = Table(rules)
    for _ in ("decided", "remembered"):
        assert table.allows(ANA, HERE, operation, GROUP, group_id) is expected


def test_a_super_user_cannot_be_denied():
    table = Table([deny(ANA, "ALL", "*")], super_users=[ANA])
    assert table.allows(ANA, HERE, X, GROUP, "g")
    assert not table.allows(BO, HERE, X, GROUP, "g")


def test_the_cluster_is_a_separate_resource():
    table = Table([allow(ANA, "DESCRIBE", "kafka-cluster", of="CLUSTER")])
    assert table.allows(ANA, HERE, D, CLUSTER, "kafka-cluster")
    assert not table.allows(ANA, HERE, D, GROUP, "kafka-cluster")


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """I22: requests about many groups, or about long names, do not grow the cache without bound."""
    monkeypatch.setattr("coordinator.base.limits.DECISIONS_MAX", 10)
    table = Table([allow(ANA, "READ", "g", pattern="PREFIXED")])
    assert all(table.allows(ANA, HERE, R, GROUP, f"g{n}") for n in range(100))
    assert table.allows(ANA, HERE, R, GROUP, "g" * 10_000)
    assert len(table._decided) <= 10
    assert max(len(name) for *_, name in table._decided) < 250


# -- random rules, compared with a walk over all rules, denials first --------------------------------------------------

names = st.sampled_from(["a", "ab", "abc", "b", "*"])
rules = st.lists(
    st.builds(
        Rule,
        principal=st.sampled_from([ANA, BO, "User:*"]),
        operation=st.sampled_from(Operation),
        resource=st.sampled_from([GROUP, TOPIC]),
        name=names,
        pattern=st.sampled_from(Pattern),
        permission=st.sampled_from(Permission),
        host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    ),
    max_size=6,
)


@given(rules, st.sampled_from([ANA, BO]), st.sampled_from([R, D, X]), st.sampled_from([GROUP, TOPIC]), names)
def test_the_index_equals_a_walk_over_all_rules(
    given_rules: list[Rule], principal: str, operation: Operation, resource: Resource, name: str
):
    implies = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}

    def fits(rule: Rule) -> bool:
        is_named = rule.name in (name, "*") if rule.pattern == "LITERAL" else name.startswith(rule.name)
        is_meant = rule.operation in (operation, "ALL") or (
            rule.permission == "ALLOW" and operation == "DESCRIBE" and rule.operation in implies
        )
        who = rule.principal in (principal, "User:*") and rule.host in ("*", "10.0.0.1")
        return who and is_named and is_meant and rule.resource == resource

    said = {rule.permission for rule in given_rules if fits(rule)}
    expected = said == {Permission.ALLOW}
    assert Table(given_rules).allows(principal, HERE, operation, resource, name) is expected
