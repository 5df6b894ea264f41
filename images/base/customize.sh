#!/bin/sh
# Finishes the tree of the base image; mmdebstrap runs it on the host with the tree as its argument.
#   COPPICE_NODE     Node.js binary to install
#   COPPICE_SOURCES  apt sources of the image
set -eu
root=$1

install -m 0755 "$COPPICE_NODE" "$root/usr/local/bin/node"
install -d -m 0755 "$root/workspace"

# Removes the apt sources and options of the build: they have the host's proxies and key files.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/etc/apt/apt.conf.d/99mmdebstrap
install -m 0644 "$COPPICE_SOURCES" "$root/etc/apt/sources.list.d/base.sources"
printf 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n' >"$root/etc/apt/apt.conf.d/90minimal"

# Removes caches, which the image does not need, and logs, which would make every build differ.
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old "$root"/var/log/*.log "$root"/var/log/apt
rm -f "$root"/var/cache/ldconfig/aux-cache

# Python checks a compiled module against the time of its source. All times in this image are clamped, so every import
# in a sandbox would compile again. Modules compiled without that check are valid, and the same in every build.
find "$root/usr" -name __pycache__ -type d -prune -exec rm -rf {} +
chroot "$root" env PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 sh -c 'python3 -m compileall -f -q -x "/(test|idlelib|lib2to3|ensurepip|tkinter)/" --invalidation-mode unchecked-hash /usr/lib/python3.*'

# Removes host name, machine id and resolver of the build host: a sandbox gets its own when it starts.
for file in hostname machine-id resolv.conf; do
  rm -f "$root/etc/$file"
  install -m 0644 /dev/null "$root/etc/$file"
done
