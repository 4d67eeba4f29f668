"""What joins Postdate to the outside: the wire formats, Kafka clients and Spark jobs."""
