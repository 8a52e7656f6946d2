# docker build -t memsched . && docker run --rm -v "$PWD:/work" memsched optimize model.onnx
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY memsched memsched
RUN python -m venv /opt/memsched && /opt/memsched/bin/pip install --no-cache-dir '.[litert,html]'

FROM python:3.12-slim
COPY --from=build /opt/memsched /opt/memsched
WORKDIR /work
ENTRYPOINT ["/opt/memsched/bin/memsched"]
