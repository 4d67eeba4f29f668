"""What a running process tells over HTTP: metrics, probes, and what is pending."""
