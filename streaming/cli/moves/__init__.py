"""`coordinator move`, `grow` and `slots`.

It imports `groups` and `lib`.
"""
