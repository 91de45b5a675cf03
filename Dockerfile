# The coordinator, its gateway, and Spark to run them on:
#   docker build --tag groupcoord:0.1.0 .
# No setting and no secret is in it: give COORDINATOR_... variables, or a file and its name in COORDINATOR_CONFIG.

# The base image is pinned by its patch release. Its digest is not known here, because no registry could be asked. To pin
# it, write python:3.11.14-slim-bookworm@sha256:... in both lines.
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE groupcoord.py ./
COPY coordinator coordinator
COPY streaming streaming
RUN python -m venv /opt/coordinator \
 && /opt/coordinator/bin/pip install --no-cache-dir --constraint constraints.txt '.[all]'

FROM python:3.11.14-slim-bookworm
# Debian keeps one version of each package, the mended one
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/coordinator coordinator \
 && install --directory --owner=coordinator --group=coordinator --mode=0700 /var/lib/coordinator
COPY --from=build /opt/coordinator /opt/coordinator
COPY --chmod=0755 deploy/executor /opt/coordinator/bin/executor
ENV PATH=/opt/coordinator/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    COORDINATOR_CACHE_DIR=/opt/coordinator/share/jars \
    COORDINATOR_CHECKPOINT=/var/lib/coordinator/default \
    COORDINATOR_HEALTH_PORT=9190 \
    COORDINATOR_LOG_FORMAT=json
# the jars, checked against their sums, and the class archive: a start fetches nothing, and writes to /tmp alone
RUN coordinator prepare

USER 10001:10001
WORKDIR /var/lib/coordinator
EXPOSE 9190
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=6 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9190/healthz', timeout=4)"]
# the first process of a container hears no signal that it does not handle: tini passes them on
ENTRYPOINT ["tini", "--"]
CMD ["coordinator", "run"]
