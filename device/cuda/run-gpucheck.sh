#!/usr/bin/env bash
# Checks Quire's CUDA device on hardware, at most 4 minutes, and prints one table. BENCH="--dim 256 ..." gives quire bench device
# other shapes. With QUIRE_LIBCUDA set to the emulator it is a rehearsal.
set -uo pipefail
cd "$(dirname "$0")"
export QUIRE_TEST_GPU=1
began=$SECONDS
table=""
failed=0

# check NAME SECONDS COMMAND...: runs it with a time limit, keeps its output in NAME.log.
check() {
  local name="$1" limit="$2" left=$((240 - (SECONDS - began))) start=$SECONDS result=ok
  shift 2
  if [ "$left" -le 0 ]; then
    table+="$(printf '%-28s %-8s no time left' "$name" skipped)"$'\n'
    failed=1
    return
  fi
  [ "$limit" -lt "$left" ] || limit="$left"
  timeout "$limit" "$@" >"$name.log" 2>&1 || { result=FAILED; failed=1; }
  table+="$(printf '%-28s %-8s %4d s  %s' "$name" "$result" "$((SECONDS - start))" "$(tail -1 "$name.log" | cut -c1-90)")"$'\n'
}

check doctor 20 ./quire doctor --device cuda --http 127.0.0.1:0 --nats 127.0.0.1:0 --data doctor-data
check conformance 90 ./cuda.test -test.run 'TestConformance'
check tags-and-products 40 ./cuda.test -test.run 'TestForeign|TestFrames|TestDigest|TestProducts' -test.v
check forward-pass 90 sh -c 'cd model && ./model.test -test.run "TestCUDA" -test.v'
if command -v compute-sanitizer >/dev/null; then
  check memcheck 60 compute-sanitizer --tool memcheck --error-exitcode 1 ./cuda.test -test.run 'TestForeignPageInBatch|TestConformance/forward/(Norm|Scratch)'
  check racecheck 60 compute-sanitizer --tool racecheck --error-exitcode 1 ./cuda.test -test.run 'TestForeignPageInBatch|TestConformance/forward/(Norm|Scratch)'
else
  table+="$(printf '%-28s %-8s compute-sanitizer is not here' 'memcheck, racecheck' skipped)"$'\n'
fi
# shellcheck disable=SC2086
check bench-device 60 ./quire bench device --device cuda ${BENCH:-}

printf '\n%s\n' "$table"
cat bench-device.log
exit "$failed"
