"""The parts of the endpoint model: addresses, answers, faults and rates."""
