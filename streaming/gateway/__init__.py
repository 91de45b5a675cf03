"""Kafka's own protocol on TCP ports, for clients that know nothing of this coordinator.

    server            the ports, the shared state of connections, and the sweep that closes idle ones
    connection        one client's socket, and the parts that handle it (its docstring has the map)
    apis              the table of all APIs, made from the rows of `exchanges` and `relayed`
    asking            requests to the coordinator and its answers
    authorizer        whether a client may send a request that goes to a broker
    cluster           the brokers, and the gateway's own address for each

To serve another API, change two files.

1. A module of `exchanges`: a pure function from a message to the questions to the coordinator, and from their answers
   to the response.
2. `exchanges/__init__.py`: the row with the message classes, the versions and that function.

To relay another API, with its response unchanged or rewritten, change one file: write its row in `relayed.py`. The row
has the versions, the rights that a request needs, the response to a refused request, and the rewriting of the response.
If no other API has the same form, write a function in `needs`, `refusing` or `rewriting` as well.

Nothing else has to change: `apis` takes the versions, the name and the handling from the row, `dispatching` checks
requests by them, and `finding` offers them to clients. `tests/streaming/gateway` goes over all rows.
"""

from streaming.gateway.server import Gateway

__all__ = ["Gateway"]
