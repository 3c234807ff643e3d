#!/bin/bash
# Epilog on every node: what train.sbatch leaves where a job was killed.
# It must never fail: Slurm drains a node whose epilog does.
rm -rf "/tmp/warmwatch-${SLURM_JOB_ID:?}" || true
rm -f "$(getent passwd "${SLURM_JOB_USER:?}" | cut -d : -f 6)/targets/warmwatch-$SLURM_JOB_ID.json" || true
