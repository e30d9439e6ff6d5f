# fedbench with the PyTorch of the package index, which runs on a CPU and, on Linux for x86-64, on a GPU:
#   docker build -t fedbench .
# with another build of PyTorch (a smaller one for the CPU only, or another version of CUDA), whose address
# PyTorch's installation page shows after --index-url:
#   docker build -t fedbench --build-arg TORCH_INDEX=ADDRESS .
# A run writes to /work, and data sets are kept in /data:
#   docker run --rm -v "$PWD:/work" -v fedbench-data:/data fedbench experiment=smoke
#   docker run --rm --gpus all -v "$PWD:/work" -v fedbench-data:/data fedbench algo=fedavg rounds=20
FROM python:3.12-slim

# g++ builds the kernels for small models on a CPU; without it they run in the stacked mode
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

ARG TORCH_INDEX=""
RUN if [ -n "$TORCH_INDEX" ]; then pip install --no-cache-dir torch torchvision --index-url "$TORCH_INDEX"; fi

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY fedbench fedbench
COPY conf conf
RUN pip install --no-cache-dir .

ENV FEDBENCH_DATA=/data
WORKDIR /work
ENTRYPOINT ["fedbench"]
CMD ["--help"]
