# One image for every role. The first stage compiles, the second only runs.
#
# Behind a private package index or a proxy with its own certificate authority, hand the build what
# pip needs as secrets; they are there for one step and are in no layer:
#   docker build --secret id=pip_conf,src=pip.conf --secret id=ca_bundle,src=ca.pem -t tallyroom .
FROM python:3.11 AS build
WORKDIR /source
RUN python3 -m venv /opt/tally
COPY constraints.txt pyproject.toml setup.py README.md LICENSE ./
COPY protos protos
COPY fss fss
COPY protocols protocols
COPY storage storage
COPY parties parties
COPY servers servers
COPY simulation simulation
COPY tallyroom tallyroom
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/pip_conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip_conf; fi; \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    /opt/tally/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt . \
    && /opt/tally/bin/pip uninstall --yes --quiet pip setuptools

FROM python:3.11-slim
# Volumes take owner and mode from these folders when they are first mounted.
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tally \
    && for folder in /store /party /tokens /federation /federation/authority \
         /federation/coordinator /federation/analyst $(seq -f /federation/server-%g 0 15); \
       do install -d -o tally -g tally -m 700 "$folder"; done \
    && install -d -o tally -g tally -m 755 /data
COPY --from=build /opt/tally /opt/tally
ENV PATH=/opt/tally/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OPENBLAS_NUM_THREADS=1 \
    MPLCONFIGDIR=/tmp/matplotlib
USER tally
CMD ["tally", "--help"]
