#!/bin/bash
# Measures a server with many nodes: AGENTS (50) machines that have joined, on the fake runtime, and PODS (1000) pods
# spread over them. It prints the server's CPU, memory and writes to disk at rest and under load. It needs bin/monopod
# and kubectl, and about 60 MB of memory for each agent.
set -euo pipefail
cd "$(dirname "$0")/../.."
agents=${AGENTS:-50} pods=${PODS:-1000}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT
export KUBECONFIG=$work/server/admin.kubeconfig
bin/monopod serve --data-dir "$work/server" --listen 0.0.0.0:0 --runtime none 2>"$work/server.log" &
server=$!
until bin/monopod status --data-dir "$work/server" >/dev/null 2>&1; do sleep 0.2; done
line=$(bin/monopod token create --data-dir "$work/server")

# usage NAME: the server's CPU since the last call, its memory, and what it wrote to the disk.
last=0 lastwrite=0 then=$(date +%s%N)
usage() {
	local ticks write now
	ticks=$(awk '{print $14 + $15}' "/proc/$server/stat")
	write=$(awk '/^write_bytes/ {print $2}' "/proc/$server/io")
	now=$(date +%s%N)
	awk -v name="$1" -v ticks=$((ticks - last)) -v ns=$((now - then)) -v write=$((write - lastwrite)) -v status="/proc/$server/status" \
		'BEGIN {while ((getline line < status) > 0) if (line ~ /^VmRSS/) {split(line, f); rss = f[2] / 1024}
			printf "%-32s %6.1f s  %6.2f %% of a core  RSS %4d MB  %8.1f KiB written\n", name, ns / 1e9, ticks / ns * 1e9, rss, write / 1024}'
	last=$ticks lastwrite=$write then=$now
}

usage 'the server alone'
for n in $(seq "$agents"); do
	# shellcheck disable=SC2086 # the line is a command
	bin/monopod ${line#monopod } --data-dir "$work/$n" --node-name "node$n" --runtime fake \
		--eviction-hard='memory.available<1Mi' --image-gc-high-threshold=100 2>"$work/$n.log" &
done
until [ "$(kubectl get nodes --no-headers | grep -c ' Ready ')" = "$agents" ]; do sleep 1; done
usage "$agents nodes have joined"
sleep 60
usage 'at rest'
kubectl create deployment web --image=monopod.local/web:1 --replicas="$pods" >/dev/null
kubectl rollout status deployment/web --timeout=15m >/dev/null
usage "$pods pods are ready"
kubectl get pods --no-headers -o wide | awk '{n[$7]++} END {for (i in n) {if (!low || n[i] < low) low = n[i]; if (n[i] > high) high = n[i]}
	print length(n) " nodes have between " low " and " high " pods"}'
sleep 60
usage 'at rest'
kubectl scale deployment/web --replicas=0 >/dev/null
until [ -z "$(kubectl get pods --no-headers 2>/dev/null)" ]; do sleep 1; done
usage 'all pods are gone'
