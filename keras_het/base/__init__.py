"""The ground floor: what every room may use and no user needs. Keras and NumPy only."""
