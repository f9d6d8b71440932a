#!/usr/bin/env bash
# Compiles the kernels to PTX, or says whether the PTX belongs to the sources.
#   device/cuda/ptx.sh build   writes kernel/quire.ptx (clang-19, of Debian's main section)
#   device/cuda/ptx.sh check   compares the hash in it with the sources; with clang-19 at hand it also compiles again and compares
set -euo pipefail
cd "$(dirname "$0")/kernel"

flags=(-x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudalib -nocudainc --cuda-feature=+ptx78 -std=c++17 -O3 -ffp-contract=off -Wall -Wextra -Werror)

hash() {
  { printf '%s\n' "${flags[*]}"; for f in $(LC_ALL=C ls *.cu *.cuh); do printf '%s\n' "$f"; cat "$f"; done; } | sha256sum | cut -d' ' -f1
}

compile() {
  printf '// Quire kernels: clang %s, sources %s\n' "$(clang-19 -dumpversion)" "$(hash)"
  clang-19 "${flags[@]}" -S all.cu -o -
}

case "${1:-}" in
build)
  compile >quire.ptx.new
  mv quire.ptx.new quire.ptx
  ;;
check)
  head="$(head -1 quire.ptx)"
  if [ "${head##*sources }" != "$(hash)" ]; then
    echo "kernel/quire.ptx is not of these sources: make ptx" >&2
    exit 1
  fi
  if command -v clang-19 >/dev/null; then
    version="$(clang-19 -dumpversion)"
    case "$head" in
    *"clang $version,"*)
      compile | cmp - quire.ptx || { echo "kernel/quire.ptx is not what clang-19 makes of the sources: make ptx" >&2; exit 1; }
      echo "kernel/quire.ptx is what clang-19 $version makes of the sources"
      ;;
    *) echo "kernel/quire.ptx has the sources' hash; it was made by another compiler (here: $version)" ;;
    esac
  else
    echo "kernel/quire.ptx has the sources' hash (clang-19 is not here to compile again)"
  fi
  ;;
*)
  echo "usage: $0 build|check" >&2
  exit 2
  ;;
esac
