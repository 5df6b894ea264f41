#!/bin/sh
# Finishes the tree of the base image; mmdebstrap runs it on the host with the tree as its argument.
#   COPPICE_NODE     Node binary to put in
#   COPPICE_SOURCES  apt sources of the image
set -eu
root=$1

install -m 0755 "$COPPICE_NODE" "$root/usr/local/bin/node"
install -d -m 0755 "$root/workspace"

# The sources and options of the build hold the host's own proxies and key files.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/etc/apt/apt.conf.d/99mmdebstrap
install -m 0644 "$COPPICE_SOURCES" "$root/etc/apt/sources.list.d/base.sources"
printf 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n' >"$root/etc/apt/apt.conf.d/90minimal"

# The image as it is built has no cache to keep, and logs would make every build differ.
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old "$root"/var/log/*.log "$root"/var/log/apt
rm -f "$root"/var/cache/ldconfig/aux-cache

# Python checks a compiled module by its source's time, and times are levelled in this image: each import in a
# sandbox would compile again. Compiled without that check, they are valid and the same in every build.
find "$root/usr" -name __pycache__ -type d -prune -exec rm -rf {} +
chroot "$root" env PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 sh -c 'python3 -m compileall -f -q -x "/(test|idlelib|lib2to3|ensurepip|tkinter)/" --invalidation-mode unchecked-hash /usr/lib/python3.*'

# Name and resolver of the build host are not the image's; a sandbox gets its own when it starts.
for file in hostname machine-id resolv.conf; do
  rm -f "$root/etc/$file"
  install -m 0644 /dev/null "$root/etc/$file"
done
