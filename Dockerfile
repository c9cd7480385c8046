# The image of every Gapless process. The local stack (Java, PostgreSQL) is not in it: containers
# have servers of their own. Both locks are written by `make lock`.
FROM python:3.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

COPY requirements-build.lock requirements-image.lock ./
# The environment gets no pip: nothing is installed into a running container.
RUN python -m pip install --quiet --require-hashes --only-binary=:all: -r requirements-build.lock \
 && python -m venv --without-pip /opt/gapless \
 && python -m pip --python /opt/gapless/bin/python install --quiet \
      --require-hashes --only-binary=:all: -r requirements-image.lock

COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY ingest ingest
COPY apply apply
COPY ops ops
RUN python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir /wheel . \
 && python -m pip --python /opt/gapless/bin/python install --quiet --no-deps --no-index /wheel/*.whl \
 && /opt/gapless/bin/python -m compileall -q /opt/gapless/lib


FROM python:3.12-slim-bookworm
RUN groupadd --gid 10001 gapless \
 && useradd --uid 10001 --gid gapless --no-create-home --home-dir / --shell /usr/sbin/nologin gapless
COPY --from=build /opt/gapless /opt/gapless
ENV PATH=/opt/gapless/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    GAPLESS_DEFINITIONS=/definitions GAPLESS_LOG_JSON=true
USER 10001:10001
WORKDIR /
ENTRYPOINT ["gapless"]
CMD ["--help"]
