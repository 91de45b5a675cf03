"""`coordinator doctor`: what a bug report needs, and what a user should look at first.

    installation  the versions of the product, its packages, Python and Java, and the jars
    settings      the settings that are not the defaults, without their secrets
    cluster       the brokers that answer, their features, the active controller and its clock
    topics        the coordinator's topics, compared with what it needs
    folder        the parts of a checkpoint on this machine, compared with settings and topics
    processes     what the processes say at their health addresses, and their clocks
    log_file      the last warnings and errors of a log

`CHECKS` in `examining` has a function for each subject. A check reads and never writes. Each is bounded in time, and
one that fails is a finding. Nothing here needs an extra of the distribution.
"""

from streaming.doctor.case import Case, Finding, Level
from streaming.doctor.examining import Report, examine

__all__ = ["Case", "Finding", "Level", "Report", "examine"]
