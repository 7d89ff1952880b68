#!/usr/bin/env bash
# Ends the Slurm that tools/slurm-up.sh started, its jobs first. usage: tools/slurm-down.sh [STATE] [--purge]
# --purge also removes its state and its configuration.
set -uo pipefail

state=$(realpath -m "${1:-.slurm}")
# Another clone's Slurm may be the one that runs: its jobs and its configuration are not ours to remove.
ours=$(grep -s "^StateSaveLocation=$state/controller$" /etc/slurm/slurm.conf)
[ -z "$ours" ] || scancel --quiet --user="$(id -un)" 2>/dev/null
for name in slurmd slurmctld munged; do
  pid=$(cat "$state/run/$name.pid" 2>/dev/null) || continue
  kill "$pid" 2>/dev/null
  for _ in $(seq 50); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null
done
if [ "${2:-}" = --purge ]; then
  rm -rf "$state"
  [ -z "$ours" ] || rm -f /etc/slurm/{slurm,gres,cgroup}.conf
fi
exit 0
