#!/usr/bin/env bash
# Times a rival and fedbench in turn: compare.sh RIVAL DATA [ROUNDS [DEVICE [TURNS]]]
# The rival's environment is $RIVALS/RIVAL.
set -euo pipefail
cd "$(dirname "$0")/../.."
rival=$1
environment=${RIVALS:-build/rivals}/$rival
options=(--data "$2" --rounds "${3:-20}" --device "${4:-cuda}")
extra=()
[[ $rival != fl_simulator ]] || extra=(--source "$environment/FL-Simulator")
export FLWR_TELEMETRY_ENABLED=0 RAY_USAGE_STATS_ENABLED=0
log=$(mktemp)
for ((turn = 0; turn < ${5:-2}; turn++)); do
  for command in \
    "$environment/bin/python scripts/rivals/$rival/run.py ${extra[*]}" \
    ".venv/bin/python scripts/rivals/own.py $rival"; do
    $command "${options[@]}" > "$log" 2>&1 || { cat "$log"; exit 1; }
    grep "images/s" "$log"
  done
done
