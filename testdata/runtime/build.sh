#!/bin/sh
# Builds the runtime for GOARCH and packs it: containerd, its shim and runc, all static. It needs a C compiler and
# libseccomp for runc: on another architecture than the machine's CC and PKG_CONFIG_PATH name them.
#
#   build.sh DIR     the programs are written to DIR, the archive to DIR.tar.zst
set -eu
mkdir -p "$1"
dir=$(realpath "$1")
cd "$(dirname "$0")"
go=${GO:-go}
version() { "$go" list -m -f '{{.Version}}' "$1"; }

containerd=github.com/containerd/containerd/v2
tags='urfave_cli_no_docs no_dynamic_plugins osusergo netgo'
CGO_ENABLED=0 "$go" build -trimpath -buildvcs=false -tags "$tags grpcnotrace" -o "$dir/containerd" \
	-ldflags "-s -w -X $containerd/version.Version=$(version $containerd)" ./containerd
CGO_ENABLED=0 "$go" build -trimpath -buildvcs=false -tags "$tags no_grpc" -o "$dir/containerd-shim-runc-v2" \
	-ldflags "-s -w -X $containerd/version.Version=$(version $containerd)" $containerd/cmd/containerd-shim-runc-v2
runc=github.com/opencontainers/runc
CGO_ENABLED=1 "$go" build -trimpath -buildvcs=false -tags "$tags seccomp" -o "$dir/runc" \
	-ldflags "-s -w -extldflags -static -X main.version=$(version $runc | sed s/v//)" $runc
cd ../..
GOOS='' GOARCH='' "$go" run ./testdata/compress "$dir/containerd" "$dir/containerd-shim-runc-v2" "$dir/runc" >"$dir.tmp"
mv "$dir.tmp" "$dir.tar.zst"
