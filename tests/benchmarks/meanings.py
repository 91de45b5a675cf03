"""The meaning of each figure of the benchmarks, and its goal."""

from collections.abc import Mapping

from tests.benchmarks.meaning import Meaning
from tests.benchmarks.rebalance_meanings import REBALANCES
from tests.benchmarks.sizing_meanings import SIZING

MEANINGS: Mapping[str, Meaning] = {
    # the core alone
    "operator_us_per_heartbeat": Meaning("a shard's work for a heartbeat, microseconds, in total", 10),
    "operator_decode_us": Meaning("... reading the request"),
    "operator_load_us": Meaning("... reading the shard's state"),
    "operator_step_us": Meaning("... the step itself"),
    "operator_state_us": Meaning("... writing the shard's state"),
    "operator_rows_us": Meaning("... writing the response"),
    "operator_next_us_per_heartbeat": Meaning("the same work for a heartbeat of the consumer protocol, microseconds"),
    "operator_next_per_s": Meaning("... heartbeats a second"),
    "operator_next_ratio": Meaning("... to heartbeats a second of the classic protocol", goal_min=1.0),
    "operator_groups": Meaning("groups in the shard"),
    "state_bytes_per_member": Meaning("state of a Stable group, bytes for each member"),
    "state_mb": Meaning("state of 16 such shards, MB"),
    # 10,000 members of one group that act within the same second, the core alone
    **{
        f"together_{act}_{figure}": Meaning(f"10,000 members {what}: {says}", goal)
        for act, what in (
            ("join", "join and sync"),
            ("restart_static", "restart under their instance ids"),
            ("restart_dynamic", "leave and join again"),
            ("leave", "leave"),
            ("expire", "expire"),
            ("commit", "commit"),
            ("describe", "send DescribeGroup each"),
        )
        for figure, says, goal in (
            ("s", "processor time, s", None),
            ("step_s", "... of the longest step, s", None),
            ("mib", "published records, MiB", None),
            ("growth", "the time divided by the time of 1,000 members", 20),
        )
    },
    # the leader's assignments
    **{
        f"assignors_{name}_{kind}_{case}_s": Meaning(
            f"{name.replace('_', '-')}, {kind} subscriptions, {case}: 1,000 members x 10,000 partitions, seconds", 5
        )
        for name in ("sticky", "cooperative_sticky")
        for kind in ("alike", "differing")
        for case in ("fresh", "left", "joined")
    },
    **{
        f"assignors_ratio_{kind}_{case}": Meaning(
            f"sticky, our time to kafka-python's, {kind} subscriptions, {case}: 100 members x 1,500 partitions", 1.0
        )
        for kind in ("alike", "differing")
        for case in ("fresh", "left", "joined")
    },
    # the plans of the consumer protocol
    **{
        f"plan_{name}_{kind}_{case}_s": Meaning(
            f"{name}, {kind} subscriptions, {case}: a plan of 1,000 members x 50,000 partitions, seconds",
            0.2 if kind == "alike" else None,
        )
        for name in ("uniform", "range")
        for kind in ("alike", "differing")
        for case in ("fresh", "left", "joined")
    },
    # the views, the commands and the page
    "views_records_per_s": Meaning("records of the output topics that the views process, a second", goal_min=50_000),
    "views_records": Meaning("... their number"),
    "groups_list_s": Meaning("`coordinator groups list` of 1,000 groups, with its start, median, s", 1.5),
    "groups_list_longest_s": Meaning("... the longest, s"),
    "page_lag_ms": Meaning("a record's timestamp to its display in a browser, one of 1,001 groups, median, ms", 300),
    "page_lag_p99_ms": Meaning("... 99 of 100, ms"),
    "page_lag_samples": Meaning("... records"),
    "page_kb": Meaning("all files of the page, kB", 200),
    # the observer, on a log of 10,000 of Kafka's own groups
    "observe_records_per_s": Meaning("records of __consumer_offsets that are observed, a second", goal_min=100_000),
    "observe_records": Meaning("... their number"),
    "observe_whole_s": Meaning("... from the start of the process until all are read, s"),
    "observe_memory_mb": Meaning("... memory of the driver, the JVM and the Python workers at most, MB"),
    "observe_state_bytes_per_group": Meaning("... state of a group of 4 members, bytes"),
    "observe_page_at_200_p50_ms": Meaning("a rebalance's record to the page, observe_every_ms=200, median, ms", 500),
    "observe_page_at_200_p99_ms": Meaning("... 99 of 100, ms"),
    "observe_page_at_2000_p50_ms": Meaning("... observe_every_ms=2000, the default, median, ms"),
    "observe_page_at_2000_p99_ms": Meaning("... 99 of 100, ms"),
    # `coordinator policy try`, without the reading of the topic
    "policy_try_s": Meaning("a trial of one policy on the requests of a group, processor time, s", 60),
    "policy_try_requests": Meaning("... their number", goal_min=1_000_000),
    "policy_try_rebalances_recorded": Meaning("... rebalances as recorded"),
    "policy_try_rebalances_model": Meaning("... in the model, under the recorded policies: none"),
    "policy_try_rebalances_succession": Meaning("... in the model, under succession"),
    # an idle coordinator
    "reply_rest_p50_ms": Meaning("request to response, idle coordinator, median, ms", 110),
    "reply_rest_p99_ms": Meaning("request to response, idle coordinator, 99 of 100, ms", 180),
    "stateless_p50_ms": Meaning("the same through a stateless Spark query, median, ms"),
    "stateless_p99_ms": Meaning("the same through a stateless Spark query, 99 of 100, ms"),
    "reply_rest_ratio": Meaning("coordinator's time to the stateless query's, medians", 1.45),
    "reply_rest_samples": Meaning("measured requests of each query"),
    "idle_cpu_percent": Meaning("the coordinator's use of a core without requests, with one silent member", 1),
    "stateless_idle_cpu_percent": Meaning("the stateless query's use of a core without requests"),
    # 1,000 members at rest in 100 groups, a heartbeat of each every 3 s
    "at_rest_1000_cores": Meaning("cores of the coordinator, members of our client", 0.15),
    "at_rest_1000_broker_cores": Meaning("... of the broker"),
    "at_rest_1000_batches_per_s": Meaning("... batches a second"),
    "at_rest_1000_gateway_cores": Meaning("cores of the coordinator, clients of a gateway", 0.15),
    "at_rest_1000_gateway_own_cores": Meaning("... of the gateway"),
    "at_rest_1000_gateway_batches_per_s": Meaning("... batches a second"),
    "at_rest_1000_kafka_cores": Meaning("cores of a broker, clients of its own coordinator"),
    # commits
    "commit_rest_p50_ms": Meaning("a commit that is waited for, through the topics, median, ms", 100),
    "commit_rest_p99_ms": Meaning("... 99 of 100, ms"),
    "commit_gateway_p50_ms": Meaning("... through a gateway, median, ms", 100),
    "commit_gateway_p99_ms": Meaning("... 99 of 100, ms"),
    "commit_kafka_p50_ms": Meaning("... with Kafka's own coordinator, median, ms"),
    "commits_per_s_pipelined": Meaning("commits a second of a client that does not wait, gateway", goal_min=5_000),
    "commits_per_s_pipelined_kafka": Meaning("... with Kafka's own coordinator"),
    "commits_loop_batches_ratio": Meaning("batches for a commit of each of ten members in a loop, to one member", 1.1),
    # offsets inside transactions, beside 20 open transactions of the same shard
    "transactions_own_partitions_s": Meaning("from the end of a transaction to its stable offsets, gateway, s", 0.4),
    "transactions_own_partitions_kafka_s": Meaning("... with Kafka's own coordinator, s"),
    "transactions_other_groups_s": Meaning("... of three other groups, gateway, s", 0.4),
    "transactions_other_groups_kafka_s": Meaning("... with Kafka's own coordinator, s"),
    "transactions_loop_per_s": Meaning("transactions a second of a client that copies records, gateway"),
    "transactions_loop_ratio": Meaning("... to those with Kafka's own coordinator", goal_min=0.5),
    # groups that move to another coordinator and back
    "move_groups": Meaning("groups that move to another coordinator and back, whose members commit through a gateway"),
    "move_first_s": Meaning("... until all have moved to a coordinator that has just been started, s"),
    "move_s": Meaning("... until all have moved back, there and back again, the longest, s"),
    "move_pause_p50_s": Meaning("... the longest wait that a move delayed, median of the groups, s"),
    "move_pause_p99_s": Meaning("... 99 of 100, s", 1.5),
    "move_first_pause_p50_s": Meaning("... of the first moves, to a coordinator that has just been started, median, s"),
    "move_first_pause_p99_s": Meaning("... 99 of 100, s"),
    "move_rest_p99_s": Meaning("... 99 of 100 before the moves, s"),
    "move_rebalances": Meaning("... rebalances", 0),
    "move_commits_lost": Meaning("... acknowledged commits that were lost", 0),
    # many groups that move, with members that send heartbeats
    "move_10000_heartbeats_per_s": Meaning("heartbeats a second of the members of 10,000 groups of 10 that move"),
    "move_10000_s": Meaning("... until all have moved, s", 300),
    "move_10000_expelled": Meaning("... members that were expelled", 0),
    "move_10000_rebalances": Meaning("... rebalances", 0),
    "move_10000_pause_p50_s": Meaning("... the longest wait that a move delayed, median of the groups, s"),
    "move_10000_pause_p99_s": Meaning("... 99 of 100, s"),
    "move_10000_wait_max_s": Meaning("... the longest wait of a heartbeat for its response meanwhile, s"),
    # growth: groups that send no requests
    "silent_bytes_per_group": Meaning("state of a silent group, bytes"),
    "silent_0_one_ms": Meaning("a batch that touches one shard of 16, without silent groups, median, ms"),
    "silent_0_all_ms": Meaning("a batch that touches all 16 shards, without silent groups, median, ms"),
    **{
        f"silent_{size}_{shards}_added_ms": Meaning(f"... time that {size} silent groups add to {says}, ms", goal_max)
        for size in ("1k", "10k", "100k")
        for shards, says, goal_max in (
            ("one", "a batch that touches one shard", 20 if size == "100k" else None),
            ("all", "a batch that touches all shards", None),
        )
    },
    "silent_100k_added_ms": Meaning("time that 100,000 silent groups add to a batch that touches all shards, ms", 150),
    "silent_others_cpu_percent": Meaning("others' use of a core in the meantime, this client's too"),
    # a coordinator with little work
    **{
        f"idle_{groups}_{name}": Meaning(f"{says}, {where}", goal_max if name == "cpu_percent" else None)
        for groups, where, goal_max in (
            ("no_group", "without any group", 1),
            ("100_groups", "100 stable groups of 10 members, session timeouts of 45 s, heartbeats every 3 s", None),
        )
        for name, says in {
            "cpu_percent": "the coordinator's use of a core",
            "jvm_cpu_percent": "... of that, the JVM",
            "broker_cpu_percent": "the broker's use of a core",
            "others_cpu_percent": "others' use of a core: near 0, or the figures are disturbed",
            "batches_per_s": "batches a second",
        }.items()
    },
    "idle_100_groups_errors": Meaning("heartbeats with an error or without a response", 0),
    # where a batch's time goes
    "batch_all_ms": Meaning("a batch with one heartbeat, mean, ms"),
    **{
        f"batch_{part}_ms": Meaning(f"... of this, {says}, ms")
        for part, says in {
            "latestOffset": "the newest offsets of the topic",
            "walCommit": "the file of the planned offsets",
            "queryPlanning": "the plan of the query",
            "addBatch": "the job: read, operator, state, write",
            "commitOffsets": "the file of the finished batch",
        }.items()
    },
    "batch_cpu_ms": Meaning("processor time of a batch, in all threads and processes, ms"),
    "batch_reply_p50_ms": Meaning("request to response in this load, p50, ms"),
    # killed and started again
    "recovery_s": Meaning("kill -9 and an immediate start to the response to a waiting request, median, s", 6),
    "recovery_longest_s": Meaning("... the longest, s"),
    "recovery_imports_and_checks_s": Meaning("... until Spark is started, median, s"),
    "recovery_spark_s": Meaning("... from there until the query is started, median, s"),
    "recovery_first_batch_s": Meaning("... from there to the response, median, s"),
    "recovery_groups": Meaning("groups of one member in state"),
    # hosts of their own
    "hosts_heartbeat_near_ms": Meaning("driver, workers and broker on different hosts: a heartbeat at rest, p50, ms"),
    "hosts_heartbeat_2ms_ratio": Meaning("... with round trips of 2 ms between them, ratio", 1.25),
    "hosts_heartbeat_50ms_ratio": Meaning("... of 50 ms, ratio"),
    "hosts_heartbeat_50ms_loss_ratio": Meaning("... of 50 ms, and 1 % of packets lost, ratio"),
    "hosts_rebalance_near_ms": Meaning("... the first join of a group and its sync, p50, ms"),
    "hosts_rebalance_2ms_ratio": Meaning("... with round trips of 2 ms, ratio"),
    "hosts_rebalance_50ms_ratio": Meaning("... of 50 ms, ratio"),
    "hosts_rebalance_50ms_loss_ratio": Meaning("... of 50 ms, and 1 % of packets lost, ratio"),
    # three brokers
    "brokers_killed_s": Meaning("one of three brokers killed: the longest time without answers, s", 13),
    "brokers_killed_kafka_s": Meaning("... of Kafka's own coordinator, for the groups of that broker, s"),
    "brokers_killed_ratio": Meaning("... ratio"),
    "brokers_killed_processor_ratio": Meaning("... processor time of all our processes, to that before", 1.2),
    "brokers_frozen_s": Meaning("one of three brokers frozen for 60 s: the longest time without answers, s"),
    "brokers_frozen_kafka_s": Meaning("... of Kafka's own coordinator, for the groups of that broker, s"),
    "brokers_frozen_ratio": Meaning("... ratio", 1.3),
    "brokers_frozen_processor_ratio": Meaning("... processor time of all our processes, to that before", 1.2),
    "brokers_restarted_s": Meaning("three brokers restarted in turn: the longest time without answers, s"),
    "brokers_restarted_kafka_s": Meaning("... of Kafka's own coordinator, s"),
    "brokers_restarted_ratio": Meaning("... ratio", 2),
    "brokers_restarted_processor_ratio": Meaning("... processor time of all our processes, to that before", 1.2),
    "brokers_readiness_untrue_s": Meaning("... time for which /readyz did not agree with the members, s", 0),
    "brokers_lost_memberships": Meaning("... members that lost their membership", 0),
    # a driver that stands by takes over
    "takeover_s": Meaning("kill -9 of the active driver to the response of the one that stands by, median, s", 3),
    "takeover_longest_s": Meaning("... the longest, s"),
    "takeover_lease_s": Meaning("... until it holds the lease, median, s"),
    "takeover_groups": Meaning("groups of one member in state"),
    # one group of thousands
    **{
        f"{name}_{figure}": Meaning(says, goal)
        for size, name, goal_s in (
            (1_000, "big_group_1000", None),
            (5_000, "big_group_5000", None),
            (10_000, "crowd_10000", 15),
        )
        for figure, says, goal in (
            ("s", f"{size} simultaneous joins to all synced; 6 s are the initial delay, s", goal_s),
            ("batch_max_ms", "... the longest batch, ms", None),
            ("batches", "... batches with requests", None),
        )
    },
    **{
        f"big_group_core_us_{size}": Meaning(f"the core alone, for each of {size} members, in total, microseconds")
        for size in (1_000, 2_000, 4_000, 5_000)
    },
    **{
        f"big_group_core_{part}_growth": Meaning(
            f"a member's {says}: time at 5,000 members to time at 1,000; 5 would be quadratic", 2.5
        )
        for part, says in {
            "join": "join",
            "joined": "share of the end of the round",
            "sync": "sync",
            "heartbeat": "heartbeat",
            "leave": "leave, all in one batch",
            "expire": "expiry, all in one batch",
        }.items()
    },
    # half an hour at 10,000 heartbeats a second
    "steady_minutes": Meaning("length of the steady load, minutes"),
    "steady_samples": Meaning("samples from which growth is computed, one a minute"),
    "steady_heartbeats_per_s": Meaning("heartbeats answered a second"),
    "steady_errors": Meaning("... with an error or without a response", 0),
    "steady_p99_ms": Meaning("... due time to response, 99 of 100, ms"),
    **{
        f"steady_{what}{suffix}": Meaning(f"{says}{how}", goal_max)
        for what, says in {
            "jvm_rss_mb": "the JVM's resident size, MB",
            "jvm_pss_mb": "the JVM's PSS, MB",
            "driver_pss_mb": "the Python driver's PSS, MB",
            "workers_pss_mb": "the Python workers' PSS, MB",
            "checkpoint_mb": "the checkpoint's size, MB",
            "checkpoint_files": "the checkpoint's files",
            "heap_mb": "the JVM's heap after a full collection, MB",
        }.items()
        for suffix, how, goal_max in (
            ("", ", at the end", None),
            ("_added", ": rise of the fitted line from minute 5 to the end", None),
            ("_growth_percent", ": the same in per cent", 3),
        )
    },
    # one core and two, one executor and two
    **{
        f"scaling_{case}_{name}": Meaning(f"{says}, {where}", 0 if name == "errors" else None)
        for case, where in {
            "1_core": "all on one core",
            "2_cores": "on two cores",
            "1_executor": "one executor of one task",
            "2_executors": "two executors of one task each",
        }.items()
        for name, says in {
            "per_s": "heartbeats a second, the most that are answered",
            "errors": "... with an error or without a response",
            "cpu_percent": "the coordinator's use of a core",
            "broker_cpu_percent": "the broker's use of a core",
            "others_cpu_percent": "others' use of a core, the load's too",
        }.items()
    },
    "scaling_cores_speed_up": Meaning("two cores to one, heartbeats a second"),
    "scaling_executors_speed_up": Meaning("two executors to one, heartbeats a second"),
    # the stages of equal batches with one executor, with two and with four, of a quarter of a core each, without load
    **{
        f"executors_{executors}_{name}": Meaning(f"{says}; {where}", 0 if name == "errors" else None)
        for executors, where in {1: "one executor", 2: "two executors", 4: "four executors"}.items()
        for name, says in {
            "stage_ms": "the stages of a batch of 30,000 heartbeats, median, ms",
            "operator_ms": "... of this, the operator's stage, ms",
            "task_ms": "the tasks of a batch, one after another, median, ms",
            "jvm_cpu_ms": "... processor time of their threads in Java, ms",
            "drift": "the stages of a batch in the last run to those in the first, medians",
            "batches": "measured batches",
            "answered": "heartbeats answered without an error, of all batches",
            "errors": "... with an error or without a response, and surplus responses",
            "broker_cpu_percent": "the broker's use of a core",
            "others_cpu_percent": "others' use of a core: near 0, or the figures are disturbed",
        }.items()
    },
    **{
        f"executors_{executors}_{name}": Meaning(says, goal_min=goal_min)
        for executors, goal in {2: 1.7, 4: None}.items()
        for name, says, goal_min in (
            ("speed_up", f"one executor's time for the stages of a batch to that of {executors}", goal),
            ("operator_speed_up", "... for the operator's stage alone", None),
        )
    },
    # one of two executors is killed under heartbeats
    "new_executor_warm_ms": Meaning("the stages of a batch before the kill, median, ms"),
    "new_executor_first_ms": Meaning("... of the first batch of the new executor, ms"),
    "new_executor_later_ms": Meaning("... of its later batches, median, ms"),
    "new_executor_ratio": Meaning("the first batch to a batch before the kill", 2),
    # a checkpoint on a disk, on an object store, and on one whose requests take 20 ms
    **{
        f"stores_{kind}_{name}": Meaning(f"{says}; the checkpoint {where}", 12 if name == "requests" else None)
        for kind, where in {
            "file": "on a disk",
            "store": "on an object store",
            "far": "on a store with 20 ms for each request",
        }.items()
        for name, says in {
            "rest_ms": "request to response at rest, p50, ms",
            "requests": "requests to the store in a batch of two tasks, median",
            "start_s": "from the start after kill -9 to the first response, 120 deltas of each task, s",
            "start_reads": "... requests for these deltas",
        }.items()
    },
    "stores_far_more_ms": Meaning(
        "... 20 ms for each request: what a batch at rest takes longer than on a disk, ms", 200
    ),
    "stores_far_start_ratio": Meaning("... the start to one on a disk", 2),
    **REBALANCES,
    # the gateway: relayed requests, rebalances of stock clients, heartbeats over plain sockets
    "gateway_produce_direct_mb_s": Meaning("librdkafka's records of 1 KB to a broker, MB/s"),
    "gateway_produce_gateway_mb_s": Meaning("the same through the gateway, MB/s"),
    "gateway_produce_ratio": Meaning("... to the direct connection, medians", goal_min=0.95),
    "gateway_fetch_direct_mb_s": Meaning("librdkafka's records of 1 KB from a broker, MB/s"),
    "gateway_fetch_gateway_mb_s": Meaning("the same through the gateway, MB/s"),
    "gateway_fetch_ratio": Meaning("... to the direct connection, medians", goal_min=0.95),
    **{
        f"gateway_{what}_{whose}{way}_p50_s": Meaning(
            f"a fourth librdkafka member's {what}, {strategy}, {at}, median, s"
        )
        for way, strategy in (("", "range"), ("_cooperative", "cooperative-sticky"))
        for what in ("join", "leave")
        for whose, at in (("gateway", "through the gateway"), ("kafka", "Kafka's own coordinator"))
    },
    "gateway_rebalance_ratio": Meaning("joins and leaves, range: through the gateway to Kafka's own", 0.3),
    "gateway_rebalance_cooperative_ratio": Meaning("the same with cooperative-sticky", 0.3),
    "gateway_connections": Meaning("connections, each of the only member of a group"),
    "gateway_reply_p50_ms": Meaning("their heartbeats every 3 s to the response, none delayed, median, ms", 150),
    "gateway_reply_p99_ms": Meaning("... 99 of 100, ms"),
    "gateway_heartbeats_per_s": Meaning("heartbeats answered a second when all members send as fast as they can"),
    "gateway_heartbeats_per_core_s": Meaning("... for each second of a core that the gateway uses"),
    "gateway_heartbeat_errors": Meaning("... with an error", 0),
    "gateway_rss_mb_max": Meaning("the gateway's memory during this load, MB"),
    "gateway_kafka_reply_p50_ms": Meaning("the same heartbeats to Kafka's own coordinator, median, ms"),
    "gateway_kafka_reply_p99_ms": Meaning("... 99 of 100, ms"),
    "gateway_kafka_heartbeats_per_s": Meaning("heartbeats that Kafka's own coordinator then answers a second"),
    "gateway_kafka_heartbeat_errors": Meaning("... with an error", 0),
    "gateway_heartbeats_ratio": Meaning("heartbeats a second: ours through one gateway to Kafka's own", goal_min=1.0),
    # under load
    "reply_33k_p50_ms": Meaning("due time to response under load, median, ms", 600),
    "reply_33k_p99_ms": Meaning("due time to response under load, 99 of 100, ms", 1100),
    "reply_33k_max_ms": Meaning("due time to response under load, longest, ms"),
    "heartbeats_per_s": Meaning("responses a second, over the length of the run, counted from its first response"),
    "heartbeats_answered": Meaning("responses from the end of the warm-up to the last one"),
    "heartbeats_asked_per_s": Meaning("heartbeats sent a second"),
    "lag_growing": Meaning("1: the unanswered accumulate, by the peaks of the middle and the last third of the run", 0),
    "heartbeat_errors": Meaning("responses with an error, and records that are no response to a heartbeat", 0),
    "heartbeats_repeated": Meaning("responses that arrived more than once"),
    "heartbeats_unanswered": Meaning("heartbeats without a response two minutes after the last was sent", 0),
    "heartbeats_seconds": Meaning("length of the run, seconds"),
    "heartbeats_groups": Meaning("groups"),
    "heartbeats_members": Meaning("members of each group"),
    "heartbeats_setup_s": Meaning("from the first join to the last group Stable, seconds"),
    "batch_p50_ms": Meaning("the query's batches under load, median, ms"),
    "batch_max_ms": Meaning("the query's batches under load, longest, ms"),
    "driver_and_workers_rss_mb_max": Meaning("driver, JVM and Python workers: peak of summed PSS, MB", 3072),
    "coordinator_cpu_percent": Meaning("the coordinator's total use of a core under load"),
    "coordinator_us_per_heartbeat": Meaning("... for each response, microseconds"),
    "coordinator_jvm_cpu_percent": Meaning("... of that, the JVM"),
    "broker_cpu_percent": Meaning("the broker's use of a core under load"),
    "load_generator_cpu_percent": Meaning("the load generator's use of a core under load"),
    "others_cpu_percent": Meaning("others' use of a core under load: near 0, or the figures are disturbed"),
    # the most heartbeats that ours and Kafka's own coordinator answer, one outstanding heartbeat for each member
    "heartbeats_ratio": Meaning("heartbeats a second: ours to Kafka's own coordinator, same cores", goal_min=1.5),
    "heartbeats_ours_max_per_s": Meaning("heartbeats a second that ours answers, over the length of the run"),
    "heartbeats_kafka_max_per_s": Meaning("heartbeats a second that Kafka's own answers, over 200 connections"),
    "heartbeats_together_max_per_s": Meaning("heartbeats a second that ours answers in records of many"),
    "heartbeats_together_ratio": Meaning("... to Kafka's own coordinator", goal_min=1.5),
    "heartbeats_together_errors": Meaning("... responses with an error", goal_max=0),
    **{
        f"capacity_{whose}_{name}": meaning
        for whose in ("ours", "kafka")
        for name, meaning in {
            "latency_ms": Meaning(f"{whose}: outstanding heartbeats divided by heartbeats answered a millisecond, ms"),
            "last_third_ratio": Meaning(f"{whose}: heartbeats a second, last third of the run to its middle third"),
            "warming_per_s": Meaning(f"{whose}: heartbeats a second in the second half of the warm-up"),
            "answered": Meaning(f"{whose}: heartbeats answered in the run"),
            "errors": Meaning(f"{whose}: responses with an error, also before and after the run", 0),
            "unmatched": Meaning(f"{whose}: heartbeats without a response at the end, or surplus responses", 0),
            "broker_cpu_percent": Meaning(f"{whose}: the broker's use of a core"),
            "load_generator_cpu_percent": Meaning(f"{whose}: the load generator's use of a core"),
            "others_cpu_percent": Meaning(f"{whose}: others' use of a core: near 0, or the figures are disturbed"),
        }.items()
    },
    "capacity_ours_coordinator_cpu_percent": Meaning("ours: the coordinator's total use of a core"),
    "capacity_ours_batch_p50_ms": Meaning("ours: the query's batches, median, ms"),
    "capacity_ours_batch_max_ms": Meaning("ours: the query's batches, longest, ms"),
    "capacity_seconds": Meaning("length of each run, seconds"),
    "capacity_groups": Meaning("groups in each run"),
    "capacity_members": Meaning("members of each group"),
    # `coordinator size`
    **SIZING,
    "cores": Meaning("cores of this machine"),
}
