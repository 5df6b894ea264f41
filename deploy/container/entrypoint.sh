#!/bin/sh
# Entry point of the container image. The first argument:
#
#   control   the API. The file COPPICE_MASTER_KEY_FILE has the master key of the installation: 32 bytes.
#   runner    the virtual machines, in a privileged container. Until it has joined, it waits: see wait_for_join.
#   join      joins the installation of COPPICE_JOIN_URL with the token on the standard input; controls reach the runner at
#             COPPICE_RUNNER_ADDRESS, or else at COPPICE_RUNNER_LISTEN
#   wait      returns when the runner has joined
#   admin …   a command of "coppice admin", such as: admin runner list
set -eu

DATA=${COPPICE_DATA_DIR:-/var/lib/coppice}
JOINED=$DATA/runner/joined.json
CGROUP=/sys/fs/cgroup
# That of deploy/coppice-runner.service.
RUNNER_CAPABILITIES=chown,dac_override,dac_read_search,fowner,kill,mknod,net_admin,net_bind_service,net_raw,setgid,setpcap,setuid,sys_admin,sys_chroot,sys_ptrace,sys_resource

fail() {
  echo "coppice: $1" >&2
  exit 78
}

find_program() {
  set -- /opt/coppice/packages/server/dist/*/main.mjs
  [ -e "$1" ] || fail 'the image lacks the built service'
  echo "$1"
}

# Copies the key to the place where control keeps it. The file of a secret belongs to another user, or cannot be written.
install_master_key() {
  key=$DATA/control/master.key
  given=${COPPICE_MASTER_KEY_FILE:-}
  if [ -z "$given" ]; then
    [ -e "$key" ] || fail "COPPICE_MASTER_KEY_FILE is not set: name a file with the master key that all controls share"
    return
  fi
  [ -s "$given" ] || fail "COPPICE_MASTER_KEY_FILE: $given does not exist, is empty or cannot be read"
  (
    umask 077
    mkdir -p "$DATA/control"
    cp "$given" "$key.new"
    chmod 600 "$key.new"
    mv "$key.new" "$key"
  )
}

# A joined runner has its record. Until then, the token comes in the file COPPICE_JOIN_TOKEN_FILE, for the control at
# COPPICE_JOIN_URL; or `join` is run in this container.
wait_for_join() {
  [ -n "${COPPICE_RUNNER_LISTEN:-}" ] || return 0
  [ -e "$JOINED" ] || echo "coppice: this runner has not joined: waiting for a token"
  while [ ! -e "$JOINED" ]; do
    if [ -n "${COPPICE_JOIN_URL:-}" ] && [ -s "${COPPICE_JOIN_TOKEN_FILE:-/nonexistent}" ]; then
      join <"$COPPICE_JOIN_TOKEN_FILE" || exit 1
    fi
    sleep 1
  done
}

join() {
  set -- runner join "${COPPICE_JOIN_URL:?is not set: the URL of the internal listener of a control}" --token -
  [ -z "${COPPICE_RUNNER_ADDRESS:-}" ] || set -- "$@" --address "$COPPICE_RUNNER_ADDRESS"
  coppice admin "$@"
}

# Puts the processes of the container into a subgroup, as systemd does for the unit: in version 2 a group with processes
# cannot have the groups of VMs, and without these VMs have no limits.
use_subgroup() {
  [ -w "$CGROUP/cgroup.procs" ] && [ -e "$CGROUP/cgroup.controllers" ] || return 0
  mkdir -p "$CGROUP/coppice_unit"
  while read -r pid; do
    echo "$pid" >"$CGROUP/coppice_unit/cgroup.procs" || true # it has ended since
  done <"$CGROUP/cgroup.procs"
}

run_runner() {
  wait_for_join
  use_subgroup
  program=$(find_program)
  exec setpriv "--bounding-set=-all,+$(echo "$RUNNER_CAPABILITIES" | sed 's/,/,+/g')" --no-new-privs -- \
    node "$program" runner
}

case "${1:-}" in
control)
  install_master_key
  exec node "$(find_program)" control
  ;;
runner) run_runner ;;
join) join ;;
wait) wait_for_join ;;
admin)
  if [ -n "${COPPICE_MASTER_KEY_FILE:-}" ]; then
    [ "${2:-}" != master-key ] ||
      fail 'a new master key would be lost with this container: unset COPPICE_MASTER_KEY_FILE, and keep COPPICE_DATA_DIR on a volume'
    install_master_key
  fi
  exec coppice "$@"
  ;;
*) fail 'name what to run: control, runner, join, wait or admin' ;;
esac
