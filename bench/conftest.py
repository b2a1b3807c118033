# These run where their file is named: they answer a question about the tool or sweep over many sizes.
collect_ignore = ["test_overhead.py"]
