"""The member's side of the consumer protocol (KIP-848), over the coordinator's topics.

states       the states of a member, and the moves between them
reactions    a member's action after an error
data         the subscription of a member, and its assignment
heartbeats   the heartbeats: the fields of each one, and the time at which it is due
topic_news   the requests with changes of topics
offsets      commits and fetches under the member's epoch
member       the state machine; like the modules above it has no clock, no thread and no network
driver       the member between the transport's thread and its owner's thread
facts        the facts about the topics of a consumer, from the brokers' metadata
participant  reconciliation on the owner's thread: listeners, and acknowledgements
"""
