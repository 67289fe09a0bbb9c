#!/bin/sh
# Writes agent/cmd/addon/gateway-api.yaml.zst: the standard channel of the Gateway API as the module in go.mod publishes
# it, the same to the byte each time. For a new version: go -C testdata/gatewayapi get sigs.k8s.io/gateway-api@VERSION,
# then this script, then the version in agent/cmd/addon/builtin.go and in testdata/sbom/main.go.
#
#   build.sh [FILE]    writes to FILE instead
set -eu
top=$(realpath "$(dirname "$0")/../..")
out=$(realpath "${1:-$top/agent/cmd/addon/gateway-api.yaml.zst}")
go=${GO:-go}
cd "$top/testdata/gatewayapi"
"$go" mod download sigs.k8s.io/gateway-api # compares it with go.sum
dir=$("$go" list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard
cd "$top"
for file in "$dir"/*.yaml; do
	echo ---
	cat "$file"
done | GOOS='' GOARCH='' "$go" run ./testdata/compress >"$out.tmp"
mv "$out.tmp" "$out"
ls -l "$out"
