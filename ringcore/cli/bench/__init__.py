"""``ringcore bench`` says how fast attention is here, and how near to the matrix product; see docs/bench.md.

One idea a module:

- `masks`: the words for masks, and who sees whom in them; `rows`: what is measured
- `inputs`: arrays whose numbers follow from their position; `check`: some rows of the answer, in float64
- `gemm`: what the matrix unit gives; `watched`: what goes over the wire, and who waits for it; `peak`: memory
- `measure`: one row, on one rank; `figures`: what follows from what all ranks have measured
- `run`: all rows, on the ranks of a ring or on threads; errors on one rank only
- `room`: whether it fits into memory; `about`: what was measured, in words
- `screen`, `progress`, `record`, `plot`, `files`: what people and programs read
"""
