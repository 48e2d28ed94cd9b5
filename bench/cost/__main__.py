"""Write docs/cost.md for `make cost`."""

from bench.cost.page import main

main()
