"""Other people's trainers: rows in the shape that each takes, and the parts that hand our credit to its loss."""
