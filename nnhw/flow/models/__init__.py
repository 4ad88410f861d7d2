"""From the user's model to the integer graph; that no step changes a result is checked on the way."""
