#!/bin/sh
# Runs the conformance tests of the Gateway API against bin/monopod, with the API as "monopod addon enable gateway-api"
# installs it. The tests, and the programs in their images, are built from Go modules, so it needs no registry.
#
#   testdata/conformance/gateway.sh [TEST]
#
# TEST is the short name of one test, by default all tests of the features that the GatewayClass names. The report is
# /var/tmp/monopod-gateway/report.yaml.
#
# It needs the programs that testdata/programs/cluster.sh lists.
set -eu
cd "$(dirname "$0")/../.."
here=testdata/conformance/gateway
space=monopod-gateway
subnet=10.76.0
. testdata/programs/cluster.sh
export CGO_ENABLED=0 # the programs in the images have no libraries
compile $here sigs.k8s.io/gateway-api/conformance/echo-basic
go test -C $here -c -vet=off -ldflags='-s -w' -o "$work/bin/gateway.test" .
[ -x "$work/bin/coredns" ] || GOBIN=$(realpath "$work/bin") go install -ldflags='-s -w' github.com/coredns/coredns@v1.12.2
prepare
images=registry.k8s.io/gateway-api/echo-basic
go run ./testdata/conformance/images "$images:v1.5.1=$work/bin/echo-basic" "$images:v1.6.0-dev.2=$work/bin/echo-basic" \
	"$images:v1.6.0-dev.3=$work/bin/echo-basic" "registry.k8s.io/coredns/coredns:v1.12.2=$work/bin/coredns" >"$data/images/gateway.tar"
# Each Gateway needs an address of its own.
serve --load-balancer-pool "$subnet.128/25"
inside "$monopod" addon enable gateway-api --data-dir "$data"
features='k get gatewayclass monopod -o jsonpath={.status.supportedFeatures[*].name}'
expect HTTPRoute $features
rc=0
inside "$work/bin/gateway.test" -test.v -test.timeout 30m --gateway-class monopod \
	--conformance-profiles GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP --supported-features "$($features | tr ' ' ,)" \
	--usable-address "$subnet.200" --unusable-address 192.0.2.1 --run-test "${1:-}" --report-output "$work/report.yaml" \
	--organization monopod --project monopod --url https://monopod.invalid --contact none \
	--version "$("$monopod" version --short 2>/dev/null || echo unknown)" >"$work/gateway.log" 2>&1 || rc=$?
grep -E '^ *--- FAIL' "$work/gateway.log" || true
grep -E 'name:|Failed|Passed' "$work/report.yaml"
exit "$rc"
