"""The recursion for the CPU, compiled by Numba: the mathematics of core/ with fused loops.

In plain torch, matrix products are fast, but every elementary operation is a separate pass over memory, and there are
no neighbour lists. In this package, Numba compiles the passes between the products; no C compiler is needed, and the
compiled code is cached on disk. core/step.py is the reference: every property is tested for both implementations, and
the two are compared with each other.
"""

# Imported before the first compilation, because a process can choose its threading layer only once.
import proxlearn.core.fused.thread_layer  # noqa: F401
