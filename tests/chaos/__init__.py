"""Everything is killed, paused and started again while real members consume; a judge reads afterwards what they did.

python -m tests.chaos --minutes 20        everything at random; the seed is printed, --seed repeats the plan
python -m tests.chaos --restarts 20       the coordinator alone, stopped or killed: rebalances that nobody wanted
python -m tests.chaos --kills 100         drivers, executors, Python workers, gateways, kill -9 (`tests.chaos.killing`);
                                          --minutes bounds it, and --tally adds it to a file of docs/tallies
"""
