"""What the two output topics come to: each group now, what it has lived through, and who owned what when.

`Views` folds records, and knows neither Kafka nor a clock; `reading` brings it the records. Commands, page, metrics and
the API all ask the same views.
"""

from streaming.views.fold import Raw, Views
from streaming.views.group import GroupView

__all__ = ["GroupView", "Raw", "Views"]
