"""Views of groups, built from the two output topics: their current state, their history and their partition owners.

`Views` folds records. It uses no Kafka client and no clock. `reading` reads the records and gives them to `Views`. The
commands, the dashboard, the metrics and the API all query the same views.
"""

from streaming.views.fold import Raw, Views
from streaming.views.group import GroupView

__all__ = ["GroupView", "Raw", "Views"]
