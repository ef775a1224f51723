"""The recursion for the CPU, compiled once: the same mathematics as core/, with its loops fused.

torch offers the matrix products at full speed but makes a pass over memory for every elementary operation, and knows no
neighbour lists. Here Numba compiles the passes between the products (no C compiler is needed, and the result is
cached on disk). core/step.py stays the reference: every law is tested on both, and each against the other.
"""

# Before a pass is compiled: the layer of threads is chosen once in a process.
import proxlearn.core.fused.thread_layer  # noqa: F401
