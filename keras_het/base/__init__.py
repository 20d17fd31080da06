"""The ground floor: functions that every part of the package may use and no user needs. Keras and NumPy only."""
