"""What happened to a group: rebalances, owners, vacancies, and the members that it waited for.

It imports `state`.
"""
