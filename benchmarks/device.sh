#!/usr/bin/env bash
# The accelerator part of the benchmarks, for whoever has a GPU or TPU for ten minutes:
#
#   pip install -e ".[cuda]"            # or .[tpu]
#   bash benchmarks/device.sh OUT       # under 8 minutes; everything lands in OUT
#
# Refuses to run on a CPU; `bash benchmarks/device.sh OUT smoke` is a dry run that may.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:?usage: bash benchmarks/device.sh OUT [smoke]}")
preset=${2:-paper}
cd "$here"
mkdir -p "$out"

python -m attnlab.cli info --json > "$out/info.json"
python - "$out/info.json" "$preset" <<'PYTHON'
import json, sys
facts = json.load(open(sys.argv[1]))
print("devices:", ", ".join(facts["devices"]))
if facts["platform"] == "cpu" and sys.argv[2] != "smoke":
    why = {"none": "JAX sees no accelerator"}.get(facts["fallback"], facts["fallback"])
    sys.exit(f"device.sh: this is a CPU ({why}); for a dry run add: smoke")
PYTHON

# The searches first (they answer most), then agreement with the CPU, then the rest as time allows.
timeout 470 python benchmarks/scaling.py --preset "$preset" --out "$out" --budget 400 \
  --only lanes,n,precision,rank,devices,d,bracket 2>&1 | tee "$out/log.txt"
echo "device.sh: report.md, figure.png, results.parquet, info.json and log.txt are in $out"
