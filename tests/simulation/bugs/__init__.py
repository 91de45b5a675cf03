"""Bugs that are put into the core on purpose. A checker or an audit has to find each of them in simulations.

known       bugs of other implementations
members     joins, sessions, static members, leaves
rounds      join rounds, generations, assignments, deadlines
commits     committed offsets, and published records
state       the stored state, the log and its time, groups that affect each other
consumers   groups of the consumer protocol
transactions  offsets inside transactions
seats       policies: seats, holds, calls and quarantines
hunt        runs simulations with each bug until one breaks a promise: `python -m tests.simulation --bugs`
"""

from tests.simulation.bugs import commits, consumers, known, members, rounds, seats, state, transactions
from tests.simulation.bugs.bug import Bug
from tests.simulation.bugs.known import Known

PARTS = (known, members, rounds, commits, state, consumers, transactions, seats)

BUGS: dict[str, Bug | Known] = {bug.name: bug for part in PARTS for bug in part.BUGS}
