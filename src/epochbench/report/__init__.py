"""How results are shown: charts, the page, the terminal. Loads no torch."""
