#!/bin/sh
# Makes a Debian package: deb.sh PROGRAM VERSION ARCHITECTURE FILE. It needs dpkg-deb, which every Debian has.
set -eu
program=$1 version=$2 architecture=$3 file=$4
top=$(dirname "$0")/..
root=$(mktemp -d)
trap 'rm -rf "$root" "$root.host" "$root.out"' EXIT
umask 022
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/lib/systemd/system" "$root/etc/default" "$root/usr/share/doc/monopod" \
	"$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
	"$root/usr/share/fish/vendor_completions.d" "$root/usr/share/man/man1"
chmod 755 "$root"
install -m 755 "$program" "$root/usr/bin/monopod"

# The unit is the one that docs/service.md shows; its flags are variables here.
awk '/^```ini$/ { f = 1; next } /^```$/ { if (f) exit } f' "$top/docs/service.md" |
	sed 's|^ExecStart=.*|EnvironmentFile=-/etc/default/monopod\nExecStart=/usr/bin/monopod serve|' >"$root/lib/systemd/system/monopod.service"
grep -q '^ExecStart=/usr/bin/monopod serve$' "$root/lib/systemd/system/monopod.service"

cat >"$root/etc/default/monopod" <<'END'
# Settings of monopod serve: every flag is a variable, --max-pods is MONOPOD_MAX_PODS (monopod serve --help).
# After a change: systemctl restart monopod
#MONOPOD_LISTEN=0.0.0.0:6443
#MONOPOD_TLS_SAN=box.example.com
END
echo /etc/default/monopod >"$root/DEBIAN/conffiles"
# host is the program for this machine, which prints the completions.
host=$program
if ! "$host" version >/dev/null 2>&1; then
	host=$root.host
	(cd "$top" && GOOS='' GOARCH='' CGO_ENABLED=0 "${GO:-go}" build -trimpath -tags grpcnotrace -ldflags='-s -w' -o "$host" .)
fi
"$host" completion bash >"$root/usr/share/bash-completion/completions/monopod"
"$host" completion zsh >"$root/usr/share/zsh/vendor-completions/_monopod"
"$host" completion fish >"$root/usr/share/fish/vendor_completions.d/monopod.fish"
# The pages need a library that is not in the program: a test that has it writes them.
(cd "$top" && GOOS='' GOARCH='' CGO_ENABLED=0 TZ=UTC "${GO:-go}" test -trimpath -tags grpcnotrace -vet=off -ldflags='-s -w' \
	-count=1 -run '^TestManPages$' . -man "$root/usr/share/man/man1" >"$root.out") || { cat "$root.out" >&2; exit 1; }
gzip -9n "$root"/usr/share/man/man1/*
cp "$top/LICENSE" "$root/usr/share/doc/monopod/copyright"
gzip -9nc "$top/CHANGELOG.md" >"$root/usr/share/doc/monopod/changelog.gz"

cat >"$root/DEBIAN/control" <<END
Package: monopod
Version: $version
Architecture: $architecture
Maintainer: The Monopod authors <monopod@localhost>
Installed-Size: $(du -sk "$root" | cut -f1)
Section: admin
Priority: optional
Description: whole Kubernetes in one small process
 API server, controllers and node agent for one small machine: an edge device,
 a laptop or a CI job. Its state is one file that survives power cuts; idle, it
 writes nothing.
END

cat >"$root/DEBIAN/preinst" <<'END'
#!/bin/sh
set -e
# The unit of monopod install hides the package's: the program that it names would go on running.
unit=/etc/systemd/system/monopod.service
if [ "$1" = install ] && grep -qs '^ExecStart=' $unit && ! grep -q '^ExecStart=/usr/bin/monopod ' $unit; then
	echo "monopod: monopod install has made $unit; run monopod uninstall --keep-pods first: data and pods stay" >&2
	exit 1
fi
# Save a snapshot of the state before another version reads it.
if [ "$1" = upgrade ] && [ -d /run/systemd/system ] && systemctl is-active --quiet monopod; then
	said=$(/usr/bin/monopod snapshot save 2>&1) || echo "monopod: no snapshot was saved before the upgrade: $said" >&2
fi
END
cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
[ "$1" = configure ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl enable --quiet monopod
# Pods keep running during the restart.
systemctl restart monopod || echo "monopod does not start: journalctl -u monopod, monopod check" >&2
END
cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
[ "$1" = remove ] && [ -d /run/systemd/system ] || exit 0
systemctl stop monopod
systemctl disable --quiet monopod
/usr/bin/monopod reset || echo "monopod: pods may still run" >&2
END
cat >"$root/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
[ "$1" != purge ] || rm -rf /var/lib/monopod || true # the folder may be a mount point
END
chmod 755 "$root/DEBIAN/preinst" "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$root/DEBIAN/postrm"
dpkg-deb --root-owner-group --build -Zxz -z1 "$root" "$file" >/dev/null
echo "$file"
