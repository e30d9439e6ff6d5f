# fedbench with the PyTorch of the package index, which runs on a CPU and, on Linux for x86-64, on a GPU:
#   docker build -t fedbench .
# with another build of PyTorch (a smaller one for the CPU only, or another version of CUDA), whose address
# PyTorch's installation page shows after --index-url:
#   docker build -t fedbench --build-arg TORCH_INDEX=ADDRESS .
# A run writes to /work as the user who starts it, and data sets are kept in /data:
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" -v fedbench-data:/data fedbench experiment=smoke
#   docker run --rm --user "$(id -u):$(id -g)" --gpus all -v "$PWD:/work" -v fedbench-data:/data fedbench rounds=20
FROM python:3.12-slim@sha256:229a2c5bfa27522db7815ea81f9bed70af17ccb9de9fc7ad142b1877b5830d36

# g++ builds the kernels for small models on a CPU; without it they run in the stacked mode
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements requirements
RUN pip install --require-hashes --only-binary :all: --requirement requirements/build.txt
RUN pip install --require-hashes --only-binary :all: --no-binary antlr4-python3-runtime --no-build-isolation \
  --requirement requirements/base.txt
ARG TORCH_INDEX=""
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --requirement requirements/torch.txt
COPY pyproject.toml README.md LICENSE ./
COPY fedbench fedbench
COPY conf conf
RUN pip install --no-deps --no-build-isolation .

# any user may keep caches and data sets, since a container runs as the user who starts it
RUN useradd --uid 1000 --create-home fedbench && install -d -m 1777 /home/fedbench /work /data
ENV HOME=/home/fedbench FEDBENCH_DATA=/data
USER fedbench
WORKDIR /work
ENTRYPOINT ["fedbench"]
CMD ["--help"]
