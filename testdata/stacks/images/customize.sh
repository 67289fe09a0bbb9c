#!/bin/sh
# Completes the root file system of the images, as a hook of mmdebstrap.
#
#   customize.sh ROOT NODE-RED
set -eu
root=$1
here=$(dirname "$0")
for name in redis mariadb postgres wordpress; do
	install "$here/$name" "$root/usr/local/bin/$name-entrypoint"
done
install "$here/apache2-foreground" "$here/git-http" "$root/usr/local/bin/"

# Users as in the public images; PostgreSQL and git need a name for theirs.
printf 'service:x:999:999::/nonexistent:/bin/sh\nnode-red:x:1000:1000::/data:/bin/sh\nmosquitto:x:1883:1883::/nonexistent:/bin/sh\n' >>"$root/etc/passwd"
install -d -o 999 -g 999 "$root/data" "$root/var/run/postgresql"
install -d -o 1883 -g 1883 "$root/mosquitto/config" "$root/mosquitto/data" "$root/mosquitto/log"

rm -rf "$root/var/lib/mysql" "$root/var/lib/postgresql/15"
rm -f "$root"/etc/mysql/mariadb.conf.d/*.cnf # Debian's socket and log

mkdir -p "$root/usr/src" "$root/srv/git"
chroot "$root" cp -rL /usr/share/wordpress /usr/src/ # it links to other packages
cp "$here/wp-config.php" "$root/usr/src/wordpress/"
cp -r "$2" "$root/usr/src/node-red"
cp -r "$here/hits" "$root/srv/"

rm -f "$root"/etc/apache2/sites-enabled/* "$root"/var/www/html/*
cp "$here/apache.conf" "$root/etc/apache2/sites-enabled/"
chroot "$root" a2enmod --quiet rewrite cgi env
mkdir -p "$root/usr/lib/busybox"
chroot "$root" busybox --install -s /usr/lib/busybox
ln -sf /bin/nc.openbsd "$root/usr/lib/busybox/nc" # Debian's BusyBox has one without -z
