"""The networks that people bring: what becomes of models as tutorials and model zoos write them."""
