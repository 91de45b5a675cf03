"""Runs that kill, pause and restart all processes while real members consume. A judge reads the results afterwards.

python -m tests.chaos --minutes 20        all faults at random; the seed is printed, --seed repeats the order
python -m tests.chaos --restarts 20       the coordinator alone, stopped or killed: counts unwanted rebalances
python -m tests.chaos --kills 100         drivers, executors, Python workers, gateways, kill -9 (`tests.chaos.killing`);
                                          --minutes limits it, and --tally adds it to a file of docs/tallies
"""
