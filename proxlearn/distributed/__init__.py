"""Training of one run in several processes (ranks) started by torchrun or srun, with torch.distributed."""
