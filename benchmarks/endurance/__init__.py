"""Half an hour at a billion messages a day, with a SIGKILL of a sidecar every two minutes.

    plan        which requests are sent, and what must become of them
    load        the program that sends them
    arrivals    the program that reads the target
    system      broker and sidecars: start, SIGKILL, samples of memory, files and disk
    figures     the outcome: lost, repeated, early; lateness apart from the kills; whether the samples are flat
    report      the record as a page of Markdown, and all values as JSON
    __main__    `python -m benchmarks.endurance`

Load and arrivals are processes of their own, so that they do not wait for each other. They share arrays in mapped
files with the judge, one element for each request.
"""
