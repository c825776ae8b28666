"""``ringcore doctor`` tells what this machine offers, what stands in the way, and the cure.

One idea a module:

- `finding`: one line of the report; a probe that fails becomes such a line
- `software`, `blas`: what is installed, from metadata: nothing heavy is imported
- `vendors`, `mpirun`: which MPI a library or a launcher belongs to; which ``mpirun`` is in PATH
- `mpi_facts`: what MPI says of itself; also a script, so that an MPI that crashes does so elsewhere
- `mpi`: what these facts mean for a ring; whether library and launcher know each other
- `ranks`: facts of each rank, gathered; cores per rank; what differs between ranks
- `cores`: the cores of this node, and who has them
- `screen`: the report for people and for programs
"""
