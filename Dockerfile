# The sidecar in a container: `postdate` with its dependencies, not root, nothing to be written but /tmp and its volume.
#
#   docker build --tag postdate:0.1.0 .
#
# BASE is an image with Python 3.11 or newer, its pip and a shell. Every version comes from requirements-dev.lock. Where no
# package registry can be reached, put the wheels into build/wheels beforehand (pip 25.3 or newer) and forbid the index:
#
#   pip download --dest build/wheels --constraint requirements-dev.lock pip hatchling .
#   docker build --build-arg PIP_OPTIONS=--no-index --tag postdate:0.1.0 .
#
# The digest is that of the index of all architectures. `scripts/release-images` refuses a base without a digest.
ARG BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${BASE} AS build
LABEL stage=postdate-build
ARG PIP_OPTIONS=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# Empty, for the volume.
WORKDIR /data
WORKDIR /src

# The dependencies first: they change seldom, and their layer is then used again. pip verifies each by the hash in the lock.
# The base's own pip may be too old to take hashes from a constraint, so it first installs the locked pip by its hash.
COPY pyproject.toml requirements-dev.lock build/wheels* /wheels/
RUN python -m venv --without-pip /opt/postdate && \
    python -c "import re; print(re.search(r'(?m)^pip==.*(\n +--hash=.*)+', open('/wheels/requirements-dev.lock').read())[0])" \
        >pip.txt && \
    python -m pip install ${PIP_OPTIONS} --find-links /wheels --target /backend --require-hashes --requirement pip.txt && \
    python -c "import tomllib; print(*tomllib.load(open('/wheels/pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        >requirements.txt && \
    export PYTHONPATH=/backend && \
    python -m pip --python /opt/postdate/bin/python install ${PIP_OPTIONS} --find-links /wheels \
        --constraint /wheels/requirements-dev.lock --requirement requirements.txt && \
    python -m pip install ${PIP_OPTIONS} --find-links /wheels --constraint /wheels/requirements-dev.lock --target /backend hatchling

COPY LICENSE README.md pyproject.toml ./
COPY connectors connectors
COPY sidecar sidecar
COPY wheel wheel
RUN PYTHONPATH=/backend python -m pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /built . && \
    python -m pip --python /opt/postdate/bin/python install --no-deps --no-index /built/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="postdate" \
      org.opencontainers.image.description="Delivers Kafka messages later: exactly once, never early" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/postdate /opt/postdate
COPY --from=build --chown=65532:65532 /data /var/lib/postdate
# No setting of Postdate is made here, for a variable would win over a configuration file. Without one, the timer indexes
# go to /var/lib/postdate.
ENV PATH=/opt/postdate/bin:$PATH HOME=/tmp XDG_STATE_HOME=/var/lib PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080 8090
ENTRYPOINT ["postdate"]
CMD ["run"]
