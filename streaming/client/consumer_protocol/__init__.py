"""The member's side of the consumer protocol (KIP-848), over the coordinator's topics.

states       the states of a member, and the moves between them
reactions    a member's action after an error
data         what a member subscribes to, and its assignment
heartbeats   the requests: what each one says, and when it is due
offsets      commits and fetches under the member's epoch
member       the state machine; like the modules above it has no clock, no thread and no network
driver       the member between the transport's thread and its owner's thread
facts        what the brokers' metadata say of the topics that a consumer subscribes to
participant  reconciliation on the owner's thread: listeners, and acknowledgements
"""
