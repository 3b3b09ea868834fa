# docker build --target cpu --build-arg TORCH_INDEX=ADDRESS -t refusal-probes .     (PyTorch's index of CPU builds)
# docker build --target cuda -t refusal-probes:cuda .
# How to serve from it: docs/serving.md.
FROM python:3.11-slim AS source
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY configs ./configs
COPY extract ./extract
COPY probes ./probes
COPY steering ./steering
COPY scoring ./scoring
COPY judging ./judging
COPY organisms ./organisms
COPY experiments ./experiments
COPY serving ./serving
COPY refusal ./refusal
COPY refusal_probes ./refusal_probes

# Wheels of torch for CUDA are many gigabytes; without TORCH_INDEX this stage takes them too.
FROM source AS cpu
ARG TORCH_INDEX
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} --constraint constraints.txt \
    '.[serve]'
RUN useradd --uid 10001 --create-home reader && mkdir /data && chown reader /data
USER 10001
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["refusal"]

# The wheel of torch brings CUDA's libraries; the host needs NVIDIA's driver and container toolkit (--gpus all).
FROM source AS cuda
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]'
RUN useradd --uid 10001 --create-home reader && mkdir /data && chown reader /data
USER 10001
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["refusal"]
