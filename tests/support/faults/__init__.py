"""Real faults on real processes: killed, stopped, cut off, out of disk, with strangers about; and the soak of them all.

`proxy` and `proxied_broker` stand between sidecars and Kafka, `small_disk` and `damage` see to the disk, `strangers`
are other clients. `scene` is a bed with a steady `load`, the `deeds` are faults done to it, and `book` judges what came
of it, read from Kafka. `soak` does it all for as long as one likes, and `report` writes it down.
"""
