"""The expected records, and checks of exactly-once delivery and order.

They share only decoders and the names of topics with the sidecar.
"""
