"""Kafka's own protocol on TCP ports, for clients that know nothing of this coordinator.

    server       the ports, a client's connection, and the handling of each request
    members      the members that use a gateway: held and gathered heartbeats, facts about topics
    exchanges    the translation of the group APIs into requests to the coordinator, and back
    coordinator  requests to the coordinator and its responses, for all connections
    relay        requests that go to a broker, and the broker's responses
    security     who a client is, and what the brokers allow it
    connection   the parts of one client's connection
    protocol     frames, schemas, and the limits of a client

A room imports only the rooms below it. Begin with `server.connection`, whose docstring has the map, and with
`server.apis`, the table of all APIs.

To serve another API, change two files.

1. A module of `exchanges`: a pure function from a message to the questions to the coordinator, and from their answers
   to the response.
2. `exchanges/__init__.py`: the row with the message classes, the versions and that function.

To relay another API, with its response unchanged or rewritten, change one file: write its row in `relayed_apis`. The
row has the versions, the rights that a request needs, the response to a refused request, and the rewriting of the
response. If no other API has the same form, write a function in `required_acls`, `error_responses` or `rewriting` too.

Nothing else has to change: `apis` takes the versions, the name and the handling from the row, `dispatcher` checks
requests by them, and `find_coordinator` offers them to clients. `tests/streaming/gateway` goes over all rows.
"""

from streaming.gateway.server.server import Gateway

__all__ = ["Gateway"]
