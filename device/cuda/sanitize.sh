#!/usr/bin/env bash
# Runs the tests of device/cuda with the emulator and its kernels under AddressSanitizer and UndefinedBehaviorSanitizer: a kernel
# that reads or writes beside its memory ends the test and is named with its line.
set -euo pipefail
cd "$(dirname "$0")"
export QUIRE_EMULATOR_FLAGS="-fsanitize=address,undefined -fno-sanitize=alignment -fno-sanitize-recover=undefined -g -O1"
export ASAN_OPTIONS="detect_stack_use_after_return=0:detect_leaks=0:verify_asan_link_order=0:handle_segv=0:abort_on_error=1"
LD_PRELOAD="$(g++ -print-file-name=libasan.so)"
binary="$(mktemp -d)/cuda.test"
trap 'rm -rf "$(dirname "$binary")"' EXIT
go test -tags cuda -c -o "$binary" .
LD_PRELOAD="$LD_PRELOAD" "$binary" "$@"
