#!/usr/bin/env bash
# Prepares one folder with everything that a check on hardware needs, below 64 MiB: `device/cuda/gpucheck.sh DIR`. The folder's
# run.sh then needs neither Go nor a compiler nor this tree.
set -euo pipefail
dir="${1:?usage: gpucheck.sh DIR}"
here="$(cd "$(dirname "$0")" && pwd)"
root="$here/../.."
rm -rf "$dir"
mkdir -p "$dir/model" "$dir/embedded"
dir="$(cd "$dir" && pwd)"
cd "$root"
go build -tags cuda -ldflags="-s -w" -o "$dir/quire" ./cmd/quire
go test -tags cuda -ldflags="-s -w" -c -o "$dir/cuda.test" ./device/cuda
go test -tags cuda -ldflags="-s -w" -c -o "$dir/model/model.test" ./model
cp -r embedded/golden "$dir/embedded/golden"
cp device/cuda/run-gpucheck.sh "$dir/run.sh"
size="$(du -sm "$dir" | cut -f1)"
if [ "$size" -ge 64 ]; then
  echo "$dir takes $size MiB, 64 are too many" >&2
  exit 1
fi
echo "$dir is ready, $size MiB: run $dir/run.sh on a machine with an NVIDIA driver"
