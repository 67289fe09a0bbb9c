#!/bin/sh
# Builds the runtime for GOARCH and packs it: containerd, its shim and runc, all static. runc needs a C compiler and
# libseccomp. For another architecture the script compiles libseccomp with a cross compiler.
#
#   build.sh DIR     writes the programs to DIR and the archive to DIR.tar.zst
#
# DIR/clibraries contains the package URLs of the C libraries in runc, for the bill of materials.
set -eu
mkdir -p "$1"
dir=$(realpath "$1")
cd "$(dirname "$0")"
go=${GO:-go}
containerd=github.com/containerd/containerd/v2
tags='urfave_cli_no_docs no_dynamic_plugins osusergo netgo'
version() { "$go" list -m -f '{{.Version}}' "$1"; }

arch=$("$go" env GOARCH) cross=
if [ "$arch" = "$("$go" env GOHOSTARCH)" ]; then
	packages='gcc libc6-dev libseccomp-dev pkgconf'
else
	case $arch in
	amd64) cross=x86_64-linux-gnu packages=libc6-dev-amd64-cross ;;
	arm64) cross=aarch64-linux-gnu packages=libc6-dev-arm64-cross ;;
	arm) cross=arm-linux-gnueabihf packages=libc6-dev-armhf-cross ;;
	riscv64) cross=riscv64-linux-gnu packages=libc6-dev-riscv64-cross ;;
	*) echo "$0: no cross compiler for $arch is known; build there, or run make build-lean" >&2; exit 1 ;;
	esac
	packages="$packages gcc-$(echo $cross | tr _ -) make curl pkgconf gperf"
fi
# shellcheck disable=SC2086 # each package is a separate word
../install.sh $packages
cc=${cross:+$cross-}gcc
if ! echo 'int main(void) { return 0; }' | "$cc" -static -x c -o /dev/null - 2>/dev/null ||
	! pkg-config --version >/dev/null || { [ -z "$cross" ] && ! pkg-config --exists libseccomp; }; then
	echo "$0: cannot compile runc for $arch; install $packages, or leave the runtime out with make build-lean" >&2
	exit 1
fi

# patch MODULE FILE SED: changes a file in a copy of the module, and replaces the module by the copy in $sources.mod.
sources=patched
rm -rf $sources*
cp go.mod $sources.mod
cp go.sum $sources.sum
patch() {
	copy=$sources/$(basename "${1%/v[0-9]}")
	mkdir -p $sources
	"$go" mod download "$1" # go list names no folder before
	cp -r "$("$go" list -m -f '{{.Dir}}' "$1")" "$copy"
	chmod -R u+w "$copy"
	sed -i.before "$3" "$copy/$2"
	! cmp -s "$copy/$2" "$copy/$2.before" || { echo "$0: $1 has changed: $2" >&2; exit 1; }
	rm "$copy/$2.before"
	echo "replace $1 => ./$copy" >>$sources.mod
}
# containerd copies the machine's /etc/hosts for each sandbox, although no container uses the copy, and a bare machine
# does not have this file. The CNI library stores the plugins' results for running pods in /var, which may be flash
# memory or read-only.
patch $containerd internal/cri/server/podsandbox/sandbox_run_linux.go \
	's/os\.CopyFile(etcHosts, sandboxEtcHosts, /os.WriteFile(sandboxEtcHosts, []byte("127.0.0.1 localhost\\n"), /'
patch github.com/containernetworking/cni libcni/api.go 's/CacheDir = "\/var\/lib\/cni"/CacheDir = "\/run\/cni"/'

CGO_ENABLED=0 "$go" build -modfile $sources.mod -trimpath -buildvcs=false -tags "$tags grpcnotrace" -o "$dir/containerd" \
	-ldflags "-s -w -X $containerd/version.Version=$(version $containerd)" ./containerd
rm -rf $sources*
CGO_ENABLED=0 "$go" build -trimpath -buildvcs=false -tags "$tags no_grpc" -o "$dir/containerd-shim-runc-v2" \
	-ldflags "-s -w -X $containerd/version.Version=$(version $containerd)" $containerd/cmd/containerd-shim-runc-v2

if [ -n "$cross" ]; then
	seccomp=libseccomp-2.6.0 sum=83b6085232d1588c379dc9b9cae47bb37407cf262e6e74993c61ba72d2a784dc
	url=http://deb.debian.org/debian/pool/main/libs/libseccomp/$(echo $seccomp | tr - _).orig.tar.gz
	[ -f "$dir/../$seccomp.tar.gz" ] || curl -fsSL --remove-on-error -o "$dir/../$seccomp.tar.gz" "$url"
	echo "$sum  $dir/../$seccomp.tar.gz" | sha256sum --check --quiet
	tar xzf "$dir/../$seccomp.tar.gz" -C "$dir"
	(cd "$dir/$seccomp" && ./configure -q --host=$cross --prefix="$dir/libseccomp" --disable-shared CFLAGS=-O2 &&
		make -s install) >/dev/null
	# Go's build cache contains the output of pkg-config: of the paths in this folder, only that of the headers may appear.
	sed -i 's/^Libs: .*/Libs: -lseccomp/' "$dir/libseccomp/lib/pkgconfig/libseccomp.pc"
	export PKG_CONFIG_LIBDIR="$dir/libseccomp/lib/pkgconfig"
fi
runc=github.com/opencontainers/runc
CC=$cc CGO_ENABLED=1 "$go" build -trimpath -buildvcs=false -tags "$tags seccomp" -o "$dir/runc" \
	-ldflags "-s -w -buildid= -extldflags '-static -L$dir/libseccomp/lib' -X main.version=$(version $runc | sed s/v//)" $runc

libraries='libc.a libgcc.a'
[ -n "$cross" ] || libraries="$libraries libseccomp.a"
for library in $libraries; do
	package=$(dpkg-query -S "$(realpath "$("$cc" -print-file-name="$library")")") || continue # not on Debian
	dpkg-query -W -f 'pkg:deb/debian/${Package}@${Version}?arch=${Architecture}&upstream=${source:Package}\n' \
		"${package%%: *}" | sed 's/+/%2B/g'
done >"$dir/clibraries"
[ -z "$cross" ] || echo "pkg:generic/libseccomp@${seccomp#*-}?download_url=$url&checksum=sha256:$sum" >>"$dir/clibraries"

cd ../..
GOOS='' GOARCH='' "$go" run ./testdata/compress "$dir/containerd" "$dir/containerd-shim-runc-v2" "$dir/runc" >"$dir.tmp"
printf %s "$(sha256sum <"$dir.tmp" | cut -c1-12)" >>"$dir.tmp" # the archive's version, which bundle.go reads
mv "$dir.tmp" "$dir.tar.zst"
