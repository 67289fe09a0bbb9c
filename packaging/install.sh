#!/bin/sh
# Downloads Monopod for this machine, checks it, and runs monopod install with the arguments:
#
#   curl -sfL https://example.org/monopod/install.sh | sudo sh -
#   curl -sfL https://example.org/monopod/install.sh | sudo sh -s - -- --listen=0.0.0.0:6443
#
# On a machine with Monopod it upgrades, and changes the flags of the service only if there are arguments. make dist
# writes this file. Variables:
#
#   MONOPOD_URL      folder of the release; default: the one for which make dist was called
#   MONOPOD_VERSION  folder in it: MONOPOD_URL/MONOPOD_VERSION; default: none, the files are in MONOPOD_URL itself
#   TMPDIR           folder for the download, 100 MB, whose programs can be executed; default /var/tmp
#
# The braces around everything make a shell read all of it first: a script whose end is missing does nothing.
{
set -eu

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

# get NAME downloads a file of the release.
get() {
	if command -v curl >/dev/null; then
		# No redirection from https to http.
		curl -fsSL --retry 2 --proto "=https,${url%%:*}" -o "$dir/$1" "$url/$1" || fail "cannot download $url/$1"
	elif command -v wget >/dev/null; then
		wget -q -O "$dir/$1" "$url/$1" || fail "cannot download $url/$1"
	else
		fail "needs curl or wget"
	fi
}

# check_signature checks that the key has signed SHA256SUMS.
check_signature() {
	if [ -z "$key" ]; then
		echo "install.sh: this release is not signed; its checksum is checked" >&2
		return
	fi
	get SHA256SUMS.minisig
	if command -v minisign >/dev/null; then
		minisign -V -q -P "$key" -m "$dir/SHA256SUMS" || fail "the signature of $url/SHA256SUMS is wrong"
	elif openssl version 2>/dev/null | grep -q '^OpenSSL [3-9]'; then
		# What minisign does: base64 of 2 bytes for the algorithm, 8 of the key's name, and the key or the signature,
		# which is one of the file's BLAKE2b. Before the key belongs the head of an Ed25519 key in DER.
		sed -n 2p "$dir/SHA256SUMS.minisig" | tr -d '\r\n' | openssl base64 -d -A | tail -c 64 >"$dir/signature"
		printf '\060\052\060\005\006\003\053\145\160\003\041\000' >"$dir/key"
		printf %s "$key" | openssl base64 -d -A | tail -c 32 >>"$dir/key"
		openssl dgst -blake2b512 -binary "$dir/SHA256SUMS" >"$dir/digest"
		openssl pkeyutl -verify -pubin -keyform DER -inkey "$dir/key" -rawin -in "$dir/digest" \
			-sigfile "$dir/signature" >/dev/null 2>&1 || fail "the signature of $url/SHA256SUMS is wrong"
	else
		echo "install.sh: neither minisign nor OpenSSL 3 is installed: the checksum is checked, its signature is not" >&2
	fi
}

# The folder of releases, and the public key of minisign that has signed them. make dist sets both.
site=
key=

main() {
	url=${MONOPOD_URL:-$site}
	[ -n "$url" ] || fail "MONOPOD_URL must be the address of the folder with the release"
	url=${url%/}${MONOPOD_VERSION:+/$MONOPOD_VERSION}
	[ "$(id -u)" = 0 ] || fail "needs root: use sudo"
	# machine is what an ELF file says about its processor.
	case $(uname -m) in
	x86_64) arch=amd64 machine=3e00 ;;
	aarch64) arch=arm64 machine=b700 ;;
	armv7* | armv8l) arch=armv7 machine=2800 ;;
	riscv64) arch=riscv64 machine=f300 ;;
	*) fail "there is no Monopod for the processor $(uname -m)" ;;
	esac
	case $(systemctl cat monopod 2>/dev/null || ls /etc/init.d/monopod 2>/dev/null || true) in
	'') installed=no ;;
	'# /lib/'* | '# /usr/lib/'*) fail "Monopod is installed as a Debian package: use apt" ;;
	*) installed=yes ;;
	esac
	program=monopod-linux-$arch
	dir=$(mktemp -d "${TMPDIR:-/var/tmp}/monopod.XXXXXX")
	trap 'rm -rf "$dir"' EXIT
	trap 'exit 1' INT TERM

	get SHA256SUMS
	check_signature
	want=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$program\$/\1/p" "$dir/SHA256SUMS")
	[ -n "$want" ] || fail "$url/SHA256SUMS does not list $program"
	get "$program"
	got=$(sha256sum "$dir/$program" | cut -d ' ' -f 1)
	[ "$got" = "$want" ] || fail "$url/$program is damaged or not complete: its checksum is $got, not $want"
	[ "$(od -An -tx1 -j18 -N2 "$dir/$program" | tr -d ' \n')" = $machine ] ||
		fail "$url/$program is a program for another processor"
	chmod 755 "$dir/$program"
	"$dir/$program" version >/dev/null ||
		fail "$url/$program does not run here; if programs in $dir cannot be executed, set TMPDIR"

	if [ $installed = yes ]; then
		"$dir/$program" upgrade "$dir/$program"
		[ $# -gt 0 ] || exit 0
	fi
	"$dir/$program" install "$@"
}

main "$@"
}
