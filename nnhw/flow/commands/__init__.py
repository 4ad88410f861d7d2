"""What single commands of the command line show and write."""
