# Shorthands; the commands behind them work alone too.
.PHONY: cuda ptx test-cuda test-cuda-sanitize gpu-check build up test sim steps mutate ci cluster clean-cluster fmt bench-peers bench-checks

build:
	go build -o quire ./cmd/quire

up: build
	./quire up

cluster: build
	./quire up -f Procfile

test:
	go test ./...

# Simulated clusters for ten minutes, and a table of what they covered. SIM="-count 1000000", SIM="-small 4", ...
SIM ?= -for 10m
sim:
	go run ./e2e/sim/cmd $(SIM)

# Kill, stop and cut off every role of real processes at every step of a hand-off, and every node of a NATS cluster. Some minutes.
steps:
	go test ./e2e/binary -run 'EveryStep|CutOff|LosesNodes|FullStreams' -steps -parallel 6 -timeout 60m -v

# Take each check out in turn; a test must fail. Some minutes. MUTATE="-sim 40" runs the simulator's seeds without each too.
MUTATE ?=
mutate:
	go run ./e2e/mutate $(MUTATE)

# Beside llama.cpp, in turns: make bench-peers MODEL=FILE LLAMA_BENCH=... LLAMA_BATCHED_BENCH=... LLAMA_SERVER=... PEERS="-r 5 -json out.json"
LLAMA_BENCH ?=
LLAMA_BATCHED_BENCH ?=
LLAMA_SERVER ?=
bench-peers: build
	go run ./bench/peers -quire ./quire -m "$(MODEL)" -llama-bench "$(LLAMA_BENCH)" -llama-batched-bench "$(LLAMA_BATCHED_BENCH)" -llama-server "$(LLAMA_SERVER)" $(PEERS)

# The binary for NVIDIA GPUs. gcc and g++ build it, against a header and a link stub of the project's own: nothing of NVIDIA's.
CUDA_ENV = CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CURDIR)/device/cuda/include" CGO_LDFLAGS="-L$(CURDIR)/device/cuda/link"
cuda:
	$(CUDA_ENV) go build -tags cuda -o quire ./cmd/quire

# Kernels to PTX, after a change of device/cuda/kernel. clang-19: Debian's package of that name.
ptx:
	device/cuda/ptx.sh build

# Everything that needs the tag, on the emulator: kernels in three orders of threads, forward pass, real processes.
test-cuda:
	$(CUDA_ENV) go vet -tags cuda ./...
	$(CUDA_ENV) go test -tags cuda ./device/cuda/... ./device/open
	$(CUDA_ENV) go test -tags cuda -run CUDA ./model ./bench ./e2e/binary

# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, on the emulator.
test-cuda-sanitize:
	$(CUDA_ENV) device/cuda/sanitize.sh

# What the checks cost: beside a build without seal, digest, gate, witness (a), zeroing and journal. make bench-checks MODEL=FILE
bench-checks: build
	go run ./bench/peers -quire ./quire -m "$(MODEL)" -checks $(PEERS)

# Checks on hardware: builds .quire-gpu-check, below 64 MiB, and runs it where nvidia-smi finds a device.
gpu-check:
	$(CUDA_ENV) device/cuda/gpucheck.sh .quire-gpu-check
	@if nvidia-smi -L >/dev/null 2>&1; then .quire-gpu-check/run.sh; else echo "no NVIDIA device here: not run"; fi

ci:
	.ci/run

fmt:
	gofmt -w $$(git ls-files '*.go')

# Forget the local cluster's keys, journal and streams.
clean-cluster:
	rm -rf .quire
