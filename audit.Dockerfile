# The audit in a container: the image of the sidecar, and with it Java, Spark, and what Spark needs to read Kafka, to keep
# the Delta tables of --state, and to reach s3a:// paths.
#
#   docker build --file audit.Dockerfile --build-arg SIDECAR=postdate:0.1.0 --tag postdate:0.1.0-audit .
#
# SIDECAR is an image that the Dockerfile has made from a Debian base.
ARG SIDECAR=postdate:0.1.0

FROM ${SIDECAR}
USER root
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update && \
    apt-get install --yes --no-install-recommends openjdk-17-jre-headless && \
    rm -rf /var/lib/apt/lists/*
COPY requirements-dev.lock /tmp/
# They lie beside Spark's own jars, so that nothing is fetched when an audit runs: `spark.jars.packages` is then
# set to nothing (--spark-conf spark.jars.packages=), as the chart does.
# pip verifies each package by the hash in the lock; setuptools, which builds PySpark, is verified, too.
RUN python -c "import re; print(*(found[0] for found in re.finditer(r'(?m)^(pip|setuptools)==.*(\n +--hash=.*)+', \
open('/tmp/requirements-dev.lock').read())), sep='\n')" >/tmp/tools.txt && \
    /usr/local/bin/python -m pip install --target /tmp/tools --require-hashes --requirement /tmp/tools.txt && \
    PYTHONPATH=/tmp/tools /usr/local/bin/python -m pip --python /opt/postdate/bin/python install --no-build-isolation \
        --constraint /tmp/requirements-dev.lock pyspark && \
    python -c "from pyspark.sql import SparkSession; from postdate.spark.session.start import image_packages; \
SparkSession.builder.master('local[1]').config('spark.jars.packages', image_packages()) \
.config('spark.jars.ivy', '/tmp/ivy').getOrCreate().stop()" && \
    cp /tmp/ivy/jars/*.jar "$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')/jars/" && \
    rm -rf /tmp/ivy /tmp/tools /tmp/tools.txt /tmp/requirements-dev.lock
USER 65532:65532
