"""The meaning of each figure about rebalances, and its goal."""

from collections.abc import Mapping

from tests.benchmarks.meaning import Meaning

REBALANCES: Mapping[str, Meaning] = {
    # rebalances: three members and a fourth, ours beside Kafka's own coordinator
    "join_ours_p50_s": Meaning("a fourth member's start until all four have their assignments, median, s", 1.0),
    "join_ours_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s", 2.0),
    "join_ours_cooperative_p50_s": Meaning("the same with cooperative-sticky, median, s"),
    "join_ours_cooperative_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s"),
    "join_kafka_p50_s": Meaning("the same with Kafka's coordinator and librdkafka, range, median, s"),
    "join_kafka_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s"),
    "join_kafka_cooperative_p50_s": Meaning("the same with cooperative-sticky, median, s"),
    "join_kafka_cooperative_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s"),
    "join_ratio": Meaning("joins: ours to Kafka's with range, medians", 0.25),
    "leave_ours_p50_s": Meaning("a fourth member's call of close until the others own all partitions, median, s"),
    "leave_ours_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s"),
    "leave_ours_cooperative_p50_s": Meaning("the same with cooperative-sticky, median, s"),
    "leave_ours_cooperative_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s"),
    "leave_kafka_p50_s": Meaning("the same with Kafka's coordinator and librdkafka, range, median, s"),
    "leave_kafka_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s"),
    "leave_kafka_cooperative_p50_s": Meaning("the same with cooperative-sticky, median, s"),
    "leave_kafka_cooperative_p99_s": Meaning("... 99 of 100, the longest of fewer than 100, s"),
    "leave_ratio": Meaning("leaves: ours to Kafka's with range, medians", 0.4),
    "rebalance_samples": Meaning("joins of each, and the same number of leaves"),
    "killed_ours_p50_s": Meaning("SIGKILL of a fourth member until the others own all, session of 6 s, median, s"),
    "killed_ours_after_session_s": Meaning("... minus the session, which began up to a heartbeat of 2 s earlier, s"),
    "killed_kafka_p50_s": Meaning("the same with Kafka's coordinator and librdkafka, median, s"),
    "killed_kafka_after_session_s": Meaning("... minus the session, which began up to a heartbeat of 2 s earlier, s"),
    "killed_samples": Meaning("members killed, of each"),
    "storm_s": Meaning("the first of many simultaneous joins to Stable with all; 6 s are the initial delay, s"),
    "storm_generations": Meaning("generations until then", 1),
    "storm_members": Meaning("members that joined together"),
    # the same joins and leaves, range, beside busy processes
    **{
        f"contended_{what}_{figure}": Meaning(says, goal)
        for what, goal_ratio in (("join", 0.6), ("leave", 0.5))
        for figure, says, goal in (
            ("ours_p50_s", f"a fourth member's {what} beside busy processes, median, s", None),
            ("ours_p99_s", "... 99 of 100, the longest of fewer than 100, s", None),
            ("kafka_p50_s", "the same with Kafka's coordinator and librdkafka, median, s", None),
            ("kafka_p99_s", "... 99 of 100, the longest of fewer than 100, s", None),
            ("ratio", "... ours to Kafka's, medians", goal_ratio),
        )
    },
    "contended_rebalance_samples": Meaning("... joins of each, and the same number of leaves"),
    "contended_busy_processes": Meaning("... busy processes"),
    # the consumer protocol: a group of one, and librdkafka's second member
    **{
        f"next_{what}{kind}_{figure}": Meaning(f"{says}, {how}: {rest}", goal)
        for what, says in (
            ("join", "the start of a second member until both have their partitions"),
            ("leave", "a second member's call of close until the other has all partitions"),
        )
        for kind, how, goal_s, goal_ratio in (("", "idle", 0.8, 0.2), ("_committing", "commits each second", 1.5, None))
        for figure, rest, goal in (
            ("ours_p50_s", "through the gateway, median, s", goal_s),
            ("ours_max_s", "... the longest, s", None),
            ("kafka_p50_s", "Kafka's own coordinator, median, s", None),
            ("kafka_max_s", "... the longest, s", None),
            ("ratio", "ours to Kafka's, medians", goal_ratio),
        )
    },
    "next_storm_ours_s": Meaning("simultaneous joins until each partition has an owner, through the gateway, s"),
    "next_storm_kafka_s": Meaning("the same with Kafka's own coordinator, s"),
    "next_storm_members": Meaning("... the members, each with ten partitions"),
    "next_samples": Meaning("joins of each, and the same number of leaves"),
    # rolling deployments: all members of a group are replaced, one by one
    "rolling_rebalances_ours": Meaning("rebalances while all members are replaced, under succession, both orders", 0),
    "rolling_rebalances_off": Meaning("... without policies"),
    "rolling_rebalances_kafka": Meaning("... with Kafka's own coordinator"),
    **{
        f"rolling_{whose}unowned_{figure}": Meaning(f"a partition's time without an owner, {says}, {rest}, s", goal)
        for whose, says, goal_p50, goal_p99 in (
            ("", "beyond the absence of the replaced member", 0.5, 2.0),
            ("off_", "without policies", None, None),
            ("kafka_", "with Kafka's own coordinator", None, None),
        )
        for figure, rest, goal in (
            ("p50_s", "median", goal_p50),
            ("p99_s", "99 of 100", goal_p99),
            ("max_s", "the longest", None),
        )
    },
    "rolling_leave_sum_ratio": Meaning("partition-seconds without an owner to Kafka's own, leave first", 0.5),
    "rolling_newcomer_sum_ratio": Meaning("... newcomer first", 0.1),
    **{
        f"rolling_{client}_{order}_{variant}_{figure}": Meaning(f"{client}, {order} first, {how}: {says}")
        for client in ("librdkafka", "java")
        for order in ("leave", "newcomer")
        for variant, how in (("ours", "succession"), ("off", "no policies"), ("kafka", "Kafka's own"))
        for figure, says in (
            ("rebalances", "rebalances"),
            ("unowned_p50_s", "time without an owner beyond the absence, median, s"),
            ("unowned_p99_s", "... 99 of 100, s"),
            ("unowned_max_s", "... the longest, s"),
            ("unowned_sum_s", "partition-seconds without an owner, the absence included"),
            ("moved", "partitions that got another owner"),
            ("twice", "records processed twice"),
        )
    },
    "rolling_members": Meaning("members of each group, which own 60 partitions"),
}
