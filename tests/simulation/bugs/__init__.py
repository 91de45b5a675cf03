"""Bugs that are put into the core on purpose, each of which a checker or an audit has to find in worlds.

known       those that others have had
members     joining, staying alive, taking over, leaving
rounds      join rounds, generations, plans, deadlines
commits     committed offsets, and what is published
state       what is kept from batch to batch, the log and its time, groups that touch each other
hunt        lets worlds live with each until one breaks a promise: `python -m tests.simulation --bugs`
"""

from tests.simulation.bugs import commits, known, members, rounds, state
from tests.simulation.bugs.bug import Bug
from tests.simulation.bugs.known import Known

BUGS: dict[str, Bug | Known] = {bug.name: bug for part in (known, members, rounds, commits, state) for bug in part.BUGS}
