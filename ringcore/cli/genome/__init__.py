"""``ringcore genome`` finds where a genome repeats itself, on either strand, however far apart.

One attention call with no trained weights answers it; docs/genome.md has the formula. One idea a module:

- `command`, `lead`: the options; what rank 0 does, from reading to writing
- `fasta`, `region`: what is read, and which part of it is looked at
- `settings`: context and sharpness, from the number of bases
- `encode`: bases as one-hot contexts, positions as signs
- `shares`: which bases each rank needs
- `attend`: what every rank does
- `ranks`, `processes`: who the ranks are: threads, or the processes of mpirun
- `repeats`: partners of single positions become maximal exact matches
- `estimate`, `memory`, `progress`: how long it takes, and how much memory
- `report`, `plot`, `screen`, `files`: what comes out
"""
