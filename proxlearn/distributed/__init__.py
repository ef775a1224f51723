"""One run over several processes (ranks) that torchrun or srun has started, on torch.distributed."""
