"""Sends 12,000 requests a second, more than a billion a day, for half an hour, and kills a sidecar every two minutes.

    plan        the requests and their expected outcomes
    load        the program that sends them
    arrivals    the program that reads the target
    system      broker and sidecars: start, SIGKILL, samples of memory, files and disk
    figures     the outcome: lost, repeated and early messages; lateness without the kills; trends of the samples
    report      the record as a page of Markdown, and all values as JSON
    __main__    `python -m benchmarks.endurance`: the kills, the count, the audit

`load` and `arrivals` are separate processes, so neither delays the other. They share arrays in mapped files with
`__main__`, one element for each request.
"""
