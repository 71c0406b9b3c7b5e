#!/bin/bash
# A run on five nodes under Slurm: sbatch slurm.sh. See docs/lab/scale.md; not run by us.
#SBATCH --nodes=5 --ntasks-per-node=1 --cpus-per-task=8 --time=04:00:00
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes=1 --ntasks=1 -w "$head" ray start --head --port=6379 --num-cpus=8 --block &
sleep 20
srun --nodes=4 --ntasks=4 --exclude="$head" ray start --address="$head:6379" --num-cpus=8 --block &
sleep 20
RAY_ADDRESS="$head:6379" counterpoint train net --preset grpo --world W1 --cap calls=3000000 --runner ray --workers 32 -o runs/w1
