"""Views of groups, built from the two output topics: their current state, their history and their partition owners.

    metrics    Prometheus metrics of groups
    api        all groups, folded from records, and the answers about them as JSON
    sentences  what happened, in sentences
    history    rebalances, owners, vacancies, and the members that a group waited for
    state      one group, as its records describe it now
    text       ids, times, durations and partitions, for sentences that people read

A room imports only the rooms below it. `Views` folds records. It uses no Kafka client and no clock. `api.reading` reads
the records and gives them to `Views`. The commands, the dashboard, the metrics and the API all query the same views.
"""

from streaming.views.api.fold import Raw, Views
from streaming.views.state.group import GroupView

__all__ = ["GroupView", "Raw", "Views"]
