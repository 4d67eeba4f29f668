"""Queries and changes of the cluster.

    groups          requests to the coordinator of a consumer group
    descriptions    descriptions of topics, and a look-up that the caller polls for them
    admin           `interface.Admin` over confluent_kafka

Imports the flat modules of `kafka` up to `connection_fault`. Thread rule: an admin client may be shared by threads; a
look-up belongs to one.
"""
