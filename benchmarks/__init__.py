"""What the product is measured by: `python -m benchmarks NAME`."""
