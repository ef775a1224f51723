"""The recursion for the CPU, compiled by Numba: the same mathematics as in core/, with fused loops.

torch has fast matrix products, but it passes over memory for every elementary operation and has no neighbour lists.
Here Numba compiles the passes between the products (without a C compiler; the result is cached on disk). core/step.py
is the reference: every property is tested on both, and the two are compared with each other.
"""

# Imported before the first compilation, because a process chooses its threading layer once.
import proxlearn.core.fused.thread_layer  # noqa: F401
