"""`coordinator groups` and `coordinator offsets`.

It imports `lib`.
"""
