"""`coordinator policy try`: a group's recorded requests under other policies.

0  recorded   what the events say happened
1  replayed   the recorded requests through the core, which has to give the same rebalances
2  as it was  model members behind the core, under the recorded policies: it shows how good the model is
3  under F    the same model members, under other policies
"""
