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
containerd=github.com/containerd/containerd/v2
tags='urfave_cli_no_docs no_dynamic_plugins osusergo netgo'
version() { "$go" list -m -f '{{.Version}}' "$1"; }

# patch MODULE FILE SED: what follows is built with a changed copy of one file of a module.
sources=patched
rm -rf $sources*
cp go.mod $sources.mod
cp go.sum $sources.sum
patch() {
	copy=$sources/$(basename "${1%/v[0-9]}")
	mkdir -p $sources
	cp -r "$("$go" list -m -f '{{.Dir}}' "$1")" "$copy"
	chmod -R u+w "$copy"
	sed -i.before "$3" "$copy/$2"
	! cmp -s "$copy/$2" "$copy/$2.before" || { echo "$0: $1 has changed: $2" >&2; exit 1; }
	rm "$copy/$2.before"
	echo "replace $1 => ./$copy" >>$sources.mod
}
# containerd copies the machine's /etc/hosts for each sandbox, although no container uses the copy, and a bare machine
# has none. The CNI library keeps what plugins answered for running pods in /var, which is flash, or read-only.
patch $containerd internal/cri/server/podsandbox/sandbox_run_linux.go \
	's/os\.CopyFile(etcHosts, sandboxEtcHosts, /os.WriteFile(sandboxEtcHosts, []byte("127.0.0.1 localhost\\n"), /'
patch github.com/containernetworking/cni libcni/api.go 's/CacheDir = "\/var\/lib\/cni"/CacheDir = "\/run\/cni"/'

CGO_ENABLED=0 "$go" build -modfile $sources.mod -trimpath -buildvcs=false -tags "$tags grpcnotrace" -o "$dir/containerd" \
	-ldflags "-s -w -X $containerd/version.Version=$(version $containerd)" ./containerd
rm -rf $sources*
CGO_ENABLED=0 "$go" build -trimpath -buildvcs=false -tags "$tags no_grpc" -o "$dir/containerd-shim-runc-v2" \
	-ldflags "-s -w -X $containerd/version.Version=$(version $containerd)" $containerd/cmd/containerd-shim-runc-v2
runc=github.com/opencontainers/runc
CGO_ENABLED=1 "$go" build -trimpath -buildvcs=false -tags "$tags seccomp" -o "$dir/runc" \
	-ldflags "-s -w -extldflags -static -X main.version=$(version $runc | sed s/v//)" $runc
cd ../..
GOOS='' GOARCH='' "$go" run ./testdata/compress "$dir/containerd" "$dir/containerd-shim-runc-v2" "$dir/runc" >"$dir.tmp"
mv "$dir.tmp" "$dir.tar.zst"
