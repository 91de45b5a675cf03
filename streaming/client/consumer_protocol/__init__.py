"""The member's side of the consumer protocol (KIP-848), over the coordinator's topics.

driver       the member (`coordinator.member.consumer_member`) between the transport's thread and its owner's thread
facts        the facts about the topics of a consumer, from the brokers' metadata
participant  reconciliation on the owner's thread: listeners, and acknowledgements
"""
