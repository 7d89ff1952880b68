#!/usr/bin/env bash
# Starts a real Slurm of one node on this machine, for tests: no systemd, no database, eight GPUs that are empty files.
# usage: tools/slurm-up.sh [STATE]     ends with tools/slurm-down.sh [STATE] [--purge]
# Partitions: cpu (default), gpu (its jobs can be preempted and are requeued), urgent (preempts them).
set -euo pipefail

state=$(realpath -m "${1:-.slurm}")
conf=/etc/slurm  # the job step drops SLURM_CONF, so a configuration elsewhere is not found inside a job
mark="written by tools/slurm-up.sh"
cpus=128 gpus=8 memory_mb=900000

[ "$(id -u)" = 0 ] || { echo "$0: Slurm's daemons need root here." >&2; exit 2; }
for program in slurmctld slurmd munged; do
  command -v "$program" >/dev/null || { echo "$0: $program is missing; 'make env-slurm' installs it." >&2; exit 2; }
done
if [ -e "$conf/slurm.conf" ] && ! grep -q "$mark" "$conf/slurm.conf"; then
  echo "$0: $conf/slurm.conf belongs to another Slurm and is left alone." >&2
  exit 2
fi
if [ "$(sinfo -h -o %T -p cpu 2>/dev/null)" = idle ]; then
  echo "Slurm runs already."
  exit 0
fi

mkdir -p "$state"/{controller,node,log,run} "$conf"
host=$(hostname -s)
getent hosts "$host" >/dev/null || echo "127.0.0.1 $host" >>/etc/hosts

key=$state/munge.key
if [ ! -f "$key" ]; then
  (umask 077 && head -c 1024 /dev/urandom >"$key")
fi
for ((gpu = 0; gpu < gpus; gpu++)); do : >"$state/node/gpu$gpu"; done
echo "Name=gpu File=$state/node/gpu[0-$((gpus - 1))]" >"$conf/gres.conf"
printf 'CgroupAutomount=no\nConstrainCores=no\n' >"$conf/cgroup.conf"
cat >"$conf/slurm.conf" <<CONF
# $mark
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$state/run/munge.socket
StateSaveLocation=$state/controller
SlurmdSpoolDir=$state/node
SlurmctldPidFile=$state/run/slurmctld.pid
SlurmdPidFile=$state/run/slurmd.pid
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdLogFile=$state/log/slurmd.log
# no cgroups, no accounting: neither is needed to schedule, and both need more than a container has
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MinJobAge=600
KillWait=30
MaxArraySize=1001
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
# the node may claim more than the machine has
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus Boards=1 SocketsPerBoard=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=$memory_mb Gres=gpu:$gpus State=UNKNOWN
PartitionName=cpu Nodes=$host Default=YES MaxTime=7-00:00:00 State=UP PriorityTier=1 PreemptMode=OFF
PartitionName=gpu Nodes=$host MaxTime=7-00:00:00 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=urgent Nodes=$host MaxTime=1-00:00:00 State=UP PriorityTier=10 PreemptMode=OFF
CONF

munged --force --key-file="$key" --socket="$state/run/munge.socket" --pid-file="$state/run/munged.pid" \
  --log-file="$state/log/munged.log" --seed-file="$state/run/munge.seed"
slurmctld
slurmd -N "$host"
for _ in $(seq 150); do
  if [ "$(sinfo -h -o %T -p cpu 2>/dev/null)" = idle ]; then
    sinfo
    exit 0
  fi
  sleep 0.2
done
echo "$0: the node did not come up." >&2
tail -n 20 "$state"/log/*.log >&2
exit 1
