"""``ringcore verify`` holds this machine, its array library and its MPI to the contract; see docs/verify.md.

One idea a module:

- `cases`: which problems; the table of what each row varies
- `attention`, `layer`: one problem: solved on a ring, gathered, compared with the float64 oracle
- `run`: all problems on the ranks of a ring, or on threads; errors on one rank only
- `outcome`, `tally`: what is found, and its sum by row
- `screen`, `record`, `progress`: what people and programs read
- `libraries`, `together`, `about`: array libraries; what ranks agree on; what was verified, in words
"""
